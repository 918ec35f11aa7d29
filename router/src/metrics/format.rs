//! In which of Prometheus' two text formats metrics are told.

use http::{HeaderMap, header};

/// A text format. They differ in how counters are described, in how the bounds of buckets are written, and in the mark of
/// the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// The older one, version 0.0.4, which everything reads.
    Plain,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

/// How much a client likes each kind of answer; `None`: it does not name it.
#[derive(Debug, Default)]
struct Wishes {
    open_metrics: Option<f32>,
    plain: Option<f32>,
    text: Option<f32>,
    any: Option<f32>,
}

impl Format {
    /// Which one these header fields ask for: OpenMetrics for those who name it, unless they would rather have the other.
    /// An `Accept` that allows neither gets the one that everything reads.
    pub(crate) fn wanted(headers: &HeaderMap) -> Self {
        let fields = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut wishes = Wishes::default();
        fields.flat_map(|field| field.split(',')).for_each(|range| wishes.add(range));
        let plain = wishes.plain.or(wishes.text).or(wishes.any).unwrap_or(0.0);
        match wishes.open_metrics {
            Some(weight) if weight > 0.0 && weight >= plain => Self::OpenMetrics,
            _ => Self::Plain,
        }
    }

    /// The value of `Content-Type`.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Plain => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl Wishes {
    /// Takes one media range of an `Accept` (RFC 9110, section 12.5.1). One with an unreadable weight says nothing.
    fn add(&mut self, range: &str) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut weight, mut version) = (1.0, None);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match (name.trim().to_ascii_lowercase().as_str(), value.trim().trim_matches('"')) {
                ("q", value) => match value.parse() {
                    Ok(said) => weight = said,
                    Err(_) => return,
                },
                ("version", value) => version = Some(value),
                _ => {}
            }
        }
        let wish = match kind.as_str() {
            // Another version would be another format.
            "application/openmetrics-text" if version.is_none_or(|version| version == "1.0.0") => {
                &mut self.open_metrics
            }
            "text/plain" => &mut self.plain,
            "text/*" => &mut self.text,
            "*/*" => &mut self.any,
            _ => return,
        };
        *wish = Some(wish.map_or(weight, |known: f32| known.max(weight)));
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn open_metrics_is_for_those_who_ask_for_it() {
        use Format::{OpenMetrics, Plain};
        for (accept, format) in [
            (&[][..], Plain),
            (&["*/*"], Plain),
            (&["text/html,application/xhtml+xml,*/*;q=0.8"], Plain),
            (&["text/plain"], Plain),
            (&["text/plain;version=0.0.4"], Plain),
            (&["application/json"], Plain),
            (&["application/openmetrics-text"], OpenMetrics),
            (&["Application/OpenMetrics-Text ; Version=\"1.0.0\" ; charset=utf-8"], OpenMetrics),
            (&["application/openmetrics-text; version=0.0.1"], Plain),
            (&["application/openmetrics-text;version=2.0.0,*/*;q=0.1"], Plain),
            (&["application/openmetrics-text;q=0"], Plain),
            (&["application/openmetrics-text;q=x"], Plain),
            (&["application/openmetrics-text;q=0.3,text/plain;q=0.5"], Plain),
            (&["application/openmetrics-text;q=0.3,text/*;q=0.5"], Plain),
            (&["application/openmetrics-text;q=0.3,*/*"], Plain),
            (&["application/openmetrics-text;q=0.3,text/plain;q=0.2,*/*"], OpenMetrics),
            (&["text/plain;q=0.5", "application/openmetrics-text"], OpenMetrics),
            // Prometheus 2.42 and 3.
            (
                &[
                    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                   text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                ],
                OpenMetrics,
            ),
            (
                &["application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                   application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                   text/plain;version=0.0.4;q=0.3,*/*;q=0.2"],
                OpenMetrics,
            ),
        ] {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(header::ACCEPT, HeaderValue::from_static(value));
            }
            assert_eq!(Format::wanted(&headers), format, "{accept:?}");
        }
    }
}
