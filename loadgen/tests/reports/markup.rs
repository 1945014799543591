//! What any page of ours has to be: well formed, complete in itself, and with nothing that runs.

/// Fails for the first thing that is wrong.
#[track_caller]
pub(crate) fn check(html: &str) {
    assert!(html.starts_with("<!DOCTYPE html>\n<html lang=\"en\">"));
    let (head, rest) = html.split_once("<style>").unwrap();
    let (style, body) = rest.split_once("</style>").unwrap();
    // Style is not markup; everything else is, and all of it has to be balanced.
    balanced(&format!(
        "{}<style></style>{body}",
        head.replacen("<!DOCTYPE html>", "", 1)
    ));
    assert!(style.contains("prefers-color-scheme: dark"));
    for outside in ["url(", "@import", "http:", "https:"] {
        assert!(!style.contains(outside), "{outside} in the style");
    }
    let lower = html.to_lowercase();
    for forbidden in [
        "<script",
        "<link",
        "<img",
        "<iframe",
        "<object",
        "src=",
        "href=",
        "javascript:",
        "onload",
        "onclick",
    ] {
        assert!(!lower.contains(forbidden), "{forbidden}");
    }
    assert!(html.contains("default-src 'none'"));
    assert!(
        !html.contains("NaN") && !html.contains(">inf"),
        "a figure that is none"
    );
    for number in attribute_numbers(html) {
        assert!(number.is_finite());
    }
}

/// The numbers of all places and lengths of drawings.
fn attribute_numbers(html: &str) -> Vec<f64> {
    let mut numbers = Vec::new();
    for name in [" x=\"", " y=\"", " cx=\"", " cy=\"", " height=\""] {
        for part in html.split(name).skip(1) {
            let value = part.split('"').next().unwrap();
            numbers.push(value.parse().unwrap_or_else(|_| panic!("{name}{value}")));
        }
    }
    numbers
}

/// Every tag is closed in its order, every attribute is quoted, no `<` or `&` stands alone.
#[track_caller]
fn balanced(html: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        references(&rest[..at]);
        let tag = &rest[at + 1..];
        let end = tag.find('>').unwrap();
        let (inside, after) = (&tag[..end], &tag[end + 1..]);
        rest = after;
        if let Some(name) = inside.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closed in the wrong order");
            continue;
        }
        let is_empty = inside.ends_with('/');
        let name = inside.trim_end_matches('/').split(' ').next().unwrap();
        assert!(
            name.bytes().all(|byte| byte.is_ascii_alphanumeric()),
            "<{inside}>"
        );
        assert_eq!(inside.matches('"').count() % 2, 0, "<{inside}>");
        for outside in inside.split('"').step_by(2).skip(1) {
            let is_name = outside.is_empty() || outside.starts_with([' ', '/']);
            assert!(is_name, "<{inside}>");
        }
        references(inside);
        if !is_empty {
            open.push(name);
        }
    }
    assert_eq!(open, [""; 0], "left open");
}

/// `&` only begins a reference.
#[track_caller]
fn references(text: &str) {
    for part in text.split('&').skip(1) {
        let name = part.split(';').next().unwrap();
        assert!(
            ["amp", "lt", "gt", "quot", "#39"].contains(&name),
            "&{name}"
        );
    }
}

#[test]
#[should_panic(expected = "closed in the wrong order")]
fn a_wrong_order_is_found() {
    balanced("<a><b></a></b>");
}

#[test]
#[should_panic(expected = "left open")]
fn an_open_tag_is_found() {
    balanced("<a><b></b>");
}

#[test]
#[should_panic(expected = "& and")]
fn a_lone_ampersand_is_found() {
    balanced("<a>this & and that</a>");
}
