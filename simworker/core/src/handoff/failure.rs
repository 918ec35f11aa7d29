//! What clients are told of a hand-off that failed. SGLang ends such requests with status 500 and a text that names the
//! stage and what its transfer backend reported.

use super::HandoffFault;
use crate::request::FinishReason;

/// Where a request was when its hand-off failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A prefill engine waited for the decode side to ask.
    PrefillBootstrap,
    /// A prefill engine had been asked.
    PrefillTransfer,
    /// A decode engine had no slots for it yet.
    DecodeHandshake,
    /// A decode engine had asked for the KV.
    DecodeTransfer,
}

/// Why it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    TimedOut,
    Told(HandoffFault),
}

impl Stage {
    /// Whether the two sides had not found each other: which counter moves.
    pub(crate) fn is_bootstrap(self) -> bool {
        matches!(self, Self::PrefillBootstrap | Self::DecodeHandshake)
    }

    pub(crate) fn failed(self, cause: Cause) -> FinishReason {
        FinishReason::Error { status: 500, message: self.message(cause) }
    }

    fn message(self, cause: Cause) -> &'static str {
        use Cause::{TimedOut, Told};
        use HandoffFault::{PeerLost, Transfer, Unreached};
        match (self, cause) {
            (Self::PrefillBootstrap, TimedOut) => {
                "Prefill bootstrap failed: KVTransferError(Request timed out in KVPoll.Bootstrapping)"
            }
            (Self::PrefillBootstrap, Told(Transfer)) => {
                "Prefill bootstrap failed: KVTransferError(Failed to get the destination of the KV)"
            }
            (Self::PrefillBootstrap, Told(PeerLost | Unreached)) => {
                "Prefill bootstrap failed: KVTransferError(Lost connection with decode instance)"
            }
            (Self::PrefillTransfer, TimedOut) => {
                "Prefill transfer failed: KVTransferError(Request timed out in KVPoll.Transferring)"
            }
            (Self::PrefillTransfer, Told(Transfer)) => {
                "Prefill transfer failed: KVTransferError(Failed to send the KV)"
            }
            (Self::PrefillTransfer, Told(PeerLost | Unreached)) => {
                "Prefill transfer failed: KVTransferError(Lost connection with decode instance)"
            }
            (Self::DecodeHandshake, TimedOut) => {
                "Decode handshake failed: KVTransferError(Request timed out in KVPoll.Bootstrapping)"
            }
            (Self::DecodeHandshake, Told(Transfer)) => {
                "Decode handshake failed: KVTransferError(Failed to reach the bootstrap server)"
            }
            (Self::DecodeHandshake, Told(PeerLost)) => {
                "Decode handshake failed: KVTransferError(Lost connection with prefill instance)"
            }
            // SGLang gives up on such a receiver as it does on one whose client has left.
            (Self::DecodeHandshake, Told(Unreached)) => {
                "Decode handshake failed: KVTransferError(Aborted by AbortReq.)"
            }
            (Self::DecodeTransfer, TimedOut) => {
                "Decode transfer failed: KVTransferError(Request timed out in KVPoll.WaitingForInput)"
            }
            (Self::DecodeTransfer, Told(Transfer)) => {
                "Decode transfer failed: KVTransferError(Failed to receive the KV)"
            }
            (Self::DecodeTransfer, Told(PeerLost | Unreached)) => {
                "Decode transfer failed: KVTransferError(Lost connection with prefill instance)"
            }
        }
    }
}
