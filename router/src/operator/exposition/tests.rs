//! What becomes of pages, line by line.

use super::*;

fn merged(pages: &[(&str, &str)]) -> (String, Vec<Taken>) {
    let mut all = Exposition::default();
    let taken = pages.iter().map(|(worker, page)| all.add(worker, page)).collect();
    (all.render(Format::Plain), taken)
}

#[test]
fn families_stand_together_and_each_sample_tells_its_worker() {
    let page = "# HELP sglang:up Whether.\n# TYPE sglang:up gauge\nsglang:up{model=\"m\"} 1\n\
        # HELP sglang:t Seconds.\n# TYPE sglang:t histogram\nsglang:t_bucket{le=\"1\"} 1\n\
        sglang:t_bucket{le=\"+Inf\"} 2\nsglang:t_sum 1.5\nsglang:t_count 2\n";
    let (text, taken) = merged(&[("http://a:1", page), ("http://b:2", page)]);
    let expected = r#"# HELP sglang_up Whether.
# TYPE sglang_up gauge
sglang_up{worker_addr="http://a:1",model="m"} 1
sglang_up{worker_addr="http://b:2",model="m"} 1
# HELP sglang_t Seconds.
# TYPE sglang_t histogram
sglang_t_bucket{worker_addr="http://a:1",le="1"} 1
sglang_t_bucket{worker_addr="http://a:1",le="+Inf"} 2
sglang_t_sum{worker_addr="http://a:1"} 1.5
sglang_t_count{worker_addr="http://a:1"} 2
sglang_t_bucket{worker_addr="http://b:2",le="1"} 1
sglang_t_bucket{worker_addr="http://b:2",le="+Inf"} 2
sglang_t_sum{worker_addr="http://b:2"} 1.5
sglang_t_count{worker_addr="http://b:2"} 2
"#;
    assert_eq!(text, expected);
    assert_eq!(taken, [Taken { samples: 5, left_out: 0 }; 2]);
}

#[test]
fn a_family_that_only_one_worker_has_or_describes_is_kept() {
    let (text, _) =
        merged(&[("a", "x 1\n"), ("b", "# HELP y Why.\n# TYPE y counter\ny 2\n# HELP x Ex.\nx 3\n")]);
    let expected = "# HELP x Ex.\n# TYPE x untyped\nx{worker_addr=\"a\"} 1\nx{worker_addr=\"b\"} 3\n\
        # HELP y Why.\n# TYPE y counter\ny{worker_addr=\"b\"} 2\n";
    assert_eq!(text, expected);
}

#[test]
fn the_first_word_on_a_family_holds() {
    let (text, taken) = merged(&[
        ("a", "# HELP x One.\n# TYPE x gauge\nx 1\n"),
        ("b", "# HELP x Another.\n# TYPE x counter\nx 2\ny 3\n"),
    ]);
    assert_eq!(
        text,
        "# HELP x One.\n# TYPE x gauge\nx{worker_addr=\"a\"} 1\n# TYPE y untyped\ny{worker_addr=\"b\"} 3\n"
    );
    assert_eq!(taken[1], Taken { samples: 1, left_out: 2 }, "its TYPE and its sample");
}

#[test]
fn what_is_not_of_the_format_is_left_out() {
    let page = "x 1\nnot a line at all\nx{a=\"b} 2\n# TYPE x\n# TYPE y strange\n# HELP 1 One.\n# a comment\n\n#\ny 2 1700\n";
    let (text, taken) = merged(&[("a", page)]);
    assert_eq!(text, "# TYPE x untyped\nx{worker_addr=\"a\"} 1\n# TYPE y untyped\ny{worker_addr=\"a\"} 2\n");
    assert_eq!(taken, [Taken { samples: 2, left_out: 5 }]);
    let (text, taken) = merged(&[("a", "<html>\n<body>\n")]);
    assert!(text.is_empty() && !taken[0].is_a_page());
    assert!(merged(&[("a", "")]).1[0].is_a_page(), "nothing to tell is no mistake");
}

#[test]
fn a_bare_series_does_not_break_a_histogram() {
    let (text, taken) =
        merged(&[("a", "# TYPE t histogram\nt 1\nt_sum 2\n# TYPE t_count gauge\nt_count 3\n")]);
    let expected = "# TYPE t histogram\nt_sum{worker_addr=\"a\"} 2\n# TYPE t_count gauge\nt_count{worker_addr=\"a\"} 3\n";
    assert_eq!((text.as_str(), taken[0].left_out), (expected, 1));
}

#[test]
fn a_counter_of_openmetrics_is_one_of_the_older_format() {
    let page =
        "# HELP x All.\n# TYPE x counter\n# UNIT x seconds\nx_total 1 # {id=\"q\"} 1\nx_created 2\n# EOF\n";
    let (text, _) = merged(&[("a", page), ("b", page)]);
    let expected = "# HELP x_total All.\n# TYPE x_total counter\nx_total{worker_addr=\"a\"} 1\n\
        x_total{worker_addr=\"b\"} 1\n# TYPE x_created untyped\nx_created{worker_addr=\"a\"} 2\n\
        x_created{worker_addr=\"b\"} 2\n";
    assert_eq!(text, expected);
}

#[test]
fn a_label_of_that_name_is_renamed_and_a_worker_is_escaped() {
    let (text, _) =
        merged(&[("h\"\\\n", "x{worker_addr=\"w\"} 1\nx{worker_addr=\"w\",exported_worker_addr=\"v\"} 2\n")]);
    let expected = "# TYPE x untyped\nx{worker_addr=\"h\\\"\\\\\\n\",exported_worker_addr=\"w\"} 1\n\
        x{worker_addr=\"h\\\"\\\\\\n\",exported_worker_addr=\"v\"} 2\n";
    assert_eq!(text, expected);
}

#[test]
fn a_gauge_of_the_routers_own_stands_with_the_others() {
    let mut all = Exposition::default();
    all.add("a", "x 1\n");
    all.flags("up", "Whether.", [("a", true), ("b", false)].into_iter());
    let (_, own) = all
        .render(Format::Plain)
        .split_once("x{worker_addr=\"a\"} 1\n")
        .map(|(a, b)| (a.len(), b.to_owned()))
        .expect("x");
    assert_eq!(
        own,
        "# HELP up Whether.\n# TYPE up gauge\nup{worker_addr=\"a\"} 1\nup{worker_addr=\"b\"} 0\n"
    );
}

#[test]
fn open_metrics_names_counters_without_their_suffix_and_marks_the_end() {
    let page = "# HELP a_total All \"of\" them.\n# TYPE a_total counter\na_total 1\n# TYPE bare counter\nbare 2\n\
        # TYPE g gauge\ng 3\n# TYPE g_total counter\ng_total 4\n# HELP t T.\n# TYPE t histogram\n\
        t_bucket{le=\"+Inf\"} 5\nt_sum 6\nt_count 5\nwild 7\n";
    let mut all = Exposition::default();
    all.add("w", page);
    let expected = r#"# HELP a All \"of\" them.
# TYPE a counter
a_total{worker_addr="w"} 1
# TYPE bare unknown
bare{worker_addr="w"} 2
# TYPE g gauge
g{worker_addr="w"} 3
# TYPE g_total unknown
g_total{worker_addr="w"} 4
# HELP t T.
# TYPE t histogram
t_bucket{worker_addr="w",le="+Inf"} 5
t_sum{worker_addr="w"} 6
t_count{worker_addr="w"} 5
# TYPE wild unknown
wild{worker_addr="w"} 7
# EOF
"#;
    assert_eq!(all.render(Format::OpenMetrics), expected);
    assert_eq!(Exposition::default().render(Format::OpenMetrics), "# EOF\n");
    let text = all.render(Format::Plain);
    assert!(text.starts_with("# HELP a_total All \"of\" them.\n# TYPE a_total counter\n"), "{text}");
    assert!(text.contains("# TYPE bare counter\n") && !text.contains("EOF"), "{text}");
}
