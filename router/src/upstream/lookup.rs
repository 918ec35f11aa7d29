//! Looking up names. The operating system may take half a minute to say that nobody knows, and cannot be stopped meanwhile.
//!
//! Whoever wants to know a name while it is being looked up waits for that answer: a name that hangs costs one thread,
//! however often it is dialled, and other names have threads of their own. They are not the runtime's, so that no other
//! work waits behind them, and neither does the end of the process.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Names that are looked up at a time, each on a thread. Further ones wait.
const AT_ONCE: usize = 1024;

/// Of the process: its threads share what they find out.
static LOOKUPS: LazyLock<Lookups> = LazyLock::new(|| Lookups::new(AT_ONCE, by_the_system));

/// Addresses, or what the system said.
type Found = Result<Arc<[IpAddr]>, Failure>;
/// Nothing until it is known.
type Answer = watch::Receiver<Option<Found>>;

/// An error that several are told of.
#[derive(Debug, Clone)]
enum Failure {
    /// The system's own number: that of a want of descriptors tells nothing of the name.
    Numbered(i32),
    Other(io::ErrorKind, Arc<str>),
}

struct Lookups {
    under_way: Arc<Mutex<HashMap<Box<str>, Answer>>>,
    threads: Arc<Semaphore>,
    find: fn(&str) -> io::Result<Vec<IpAddr>>,
}

/// The addresses of a name, in the system's order.
///
/// # Errors
/// What the system says.
pub(super) async fn addresses(name: &str) -> io::Result<Arc<[IpAddr]>> {
    LOOKUPS.addresses(name).await
}

fn by_the_system(name: &str) -> io::Result<Vec<IpAddr>> {
    Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}

impl Failure {
    fn of(error: &io::Error) -> Self {
        let other = || Self::Other(error.kind(), error.to_string().into());
        error.raw_os_error().map_or_else(other, Self::Numbered)
    }

    fn error(&self) -> io::Error {
        match self {
            Self::Numbered(number) => io::Error::from_raw_os_error(*number),
            Self::Other(kind, said) => io::Error::new(*kind, &**said),
        }
    }
}

impl Lookups {
    fn new(at_once: usize, find: fn(&str) -> io::Result<Vec<IpAddr>>) -> Self {
        Self { under_way: Arc::default(), threads: Arc::new(Semaphore::new(at_once)), find }
    }

    async fn addresses(&self, name: &str) -> io::Result<Arc<[IpAddr]>> {
        let under_way = self.under_way.lock().get(name).cloned();
        let mut answer = match under_way {
            Some(answer) => answer,
            None => {
                let thread = Arc::clone(&self.threads).acquire_owned().await.expect("never closed");
                self.begin(name, thread)?
            }
        };
        let found = answer.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
        match found {
            Some(Ok(addresses)) => Ok(addresses),
            Some(Err(failure)) => Err(failure.error()),
            None => Err(io::Error::other("the look-up has failed")),
        }
    }

    /// Looks a name up, unless somebody has begun to do so meanwhile.
    fn begin(&self, name: &str, thread: OwnedSemaphorePermit) -> io::Result<Answer> {
        let mut under_way = self.under_way.lock();
        if let Some(answer) = under_way.get(name) {
            return Ok(answer.clone());
        }
        let (tell, answer) = watch::channel(None);
        let (table, find, own) = (Arc::clone(&self.under_way), self.find, Box::<str>::from(name));
        let look_up = move || {
            let found = find(&own);
            // Who comes from now on wants a fresh answer.
            table.lock().remove(&own);
            let told = found.map(Into::into).map_err(|error| Failure::of(&error));
            drop(thread);
            tell.send_replace(Some(told));
        };
        std::thread::Builder::new().name("lookup".to_owned()).spawn(look_up)?;
        under_way.insert(name.into(), answer.clone());
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use parking_lot::Condvar;

    use super::*;

    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    static GO: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

    /// Names that begin with an `s` are slow: they are known when the test lets go.
    fn find(name: &str) -> io::Result<Vec<IpAddr>> {
        if name.starts_with('s') {
            BEGUN.fetch_add(1, Ordering::SeqCst);
            GO.1.wait_while(&mut GO.0.lock(), |go| !*go);
        }
        if name == "full" {
            return Err(io::Error::from_raw_os_error(24));
        }
        if name == "nobody" {
            return Err(io::Error::new(io::ErrorKind::NotFound, "nobody knows"));
        }
        Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])
    }

    fn begin(
        lookups: &Arc<Lookups>,
        name: &'static str,
    ) -> tokio::task::JoinHandle<io::Result<Arc<[IpAddr]>>> {
        let lookups = Arc::clone(lookups);
        tokio::spawn(async move { lookups.addresses(name).await })
    }

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test);
    }

    #[test]
    fn a_name_that_hangs_takes_one_thread_and_holds_up_no_other() {
        run(async {
            let lookups = Arc::new(Lookups::new(3, find));
            let slow = ["s1", "s1", "s2", "s1", "s2"].map(|name| begin(&lookups, name));
            while BEGUN.load(Ordering::SeqCst) < 2 {
                tokio::task::yield_now().await;
            }
            let local: Arc<[IpAddr]> = [IpAddr::V4(Ipv4Addr::LOCALHOST)].into();
            assert_eq!(lookups.addresses("quick").await.expect("known"), local);
            let error = lookups.addresses("nobody").await.expect_err("unknown");
            assert_eq!((error.kind(), error.to_string().as_str()), (io::ErrorKind::NotFound, "nobody knows"));
            let full = lookups.addresses("full").await.expect_err("no descriptors");
            assert_eq!(full.raw_os_error(), Some(24), "that is not the name's fault");
            assert_eq!((lookups.threads.available_permits(), lookups.under_way.lock().len()), (1, 2));
            *GO.0.lock() = true;
            GO.1.notify_all();
            for one in slow {
                assert_eq!(one.await.expect("no panic").expect("known"), local);
            }
            assert_eq!(BEGUN.load(Ordering::SeqCst), 2);
            assert!(lookups.under_way.lock().is_empty());
        });
    }

    #[test]
    fn who_gives_up_leaves_no_name_behind_and_the_system_is_asked() {
        run(async {
            let lookups = Lookups::new(1, by_the_system);
            let mut impatient = Box::pin(lookups.addresses("localhost"));
            // Asked once, and dropped.
            let _ = std::future::poll_fn(|cx| std::task::Poll::Ready(impatient.as_mut().poll(cx))).await;
            drop(impatient);
            let found = lookups.addresses("localhost").await.expect("known");
            assert!(found.iter().all(IpAddr::is_loopback) && !found.is_empty(), "{found:?}");
        });
    }
}
