//! A source file, once as it is written and once with everything but code blanked out.

use std::fmt;

/// One file.
pub struct Source {
    /// From the root of the project, with slashes.
    pub path: String,
    pub text: String,
    /// As long as `text`, line for line, with spaces for comments, strings and characters. Equal to
    /// `text` where the language is not Rust.
    pub code: String,
}

/// What is wrong, where, and what to do.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub path: String,
    /// From 1.
    pub line: usize,
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        let code = if path.ends_with(".rs") {
            blank(text)
        } else {
            text.to_owned()
        };
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            code,
        }
    }

    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The room of the house a file under `src/` belongs to; the sub-folder of `bin` is no room.
    pub fn room(&self) -> Option<&str> {
        let inner = self.path.strip_prefix("src/")?;
        let first = inner.split('/').next()?;
        Some(first.strip_suffix(".rs").unwrap_or(first))
    }

    pub fn finding(&self, offset: usize, what: impl Into<String>) -> Finding {
        self.finding_at_line(self.line_of(offset), what)
    }

    pub fn finding_at_line(&self, line: usize, what: impl Into<String>) -> Finding {
        Finding {
            path: self.path.clone(),
            line,
            what: what.into(),
        }
    }

    /// Counted from 1.
    pub fn line_of(&self, offset: usize) -> usize {
        self.code.as_bytes()[..offset]
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count()
            + 1
    }

    /// Where `word` stands in the code as a word of its own.
    pub fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        let bytes = self.code.as_bytes();
        self.code
            .match_indices(word)
            .map(|(at, _)| at)
            .filter(move |&at| {
                let inside = |at: usize| bytes.get(at).is_some_and(|&byte| is_name(byte));
                let joined_before = at > 0 && is_name(bytes[at - 1]) && is_name(word.as_bytes()[0]);
                let last = word.as_bytes()[word.len() - 1];
                !(joined_before || is_name(last) && inside(at + word.len()))
            })
    }

    /// Where the tests of this file begin: all of a `tests.rs`, else at `#[cfg(test)]` before a
    /// module's body, which by custom comes last.
    pub fn tests_start(&self) -> usize {
        if self.path.ends_with("/tests.rs") || self.path.contains("/tests/") {
            return 0;
        }
        let body = |at: usize| {
            let rest = self.code[at..]
                .trim_start_matches("#[cfg(test)]")
                .trim_start();
            rest.starts_with("mod ") && rest.lines().next().is_some_and(|line| line.ends_with('{'))
        };
        self.words("#[cfg(test)]")
            .find(|&at| body(at))
            .unwrap_or(self.code.len())
    }
}

pub fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Rust code with a space for each byte of a comment, string or character. Line breaks stay.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let len = span_len(bytes, at);
        for byte in &mut out[at..at + len] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at += len.max(1);
    }
    String::from_utf8(out).expect("whole strings and comments were blanked, so no character is cut")
}

/// How many bytes of what is no code begin here; 0 if it is code.
fn span_len(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let before = at.checked_sub(1).map(|before| bytes[before]);
    match rest {
        [b'/', b'/', ..] => rest
            .iter()
            .position(|&byte| byte == b'\n')
            .unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment_len(rest),
        [b'"', ..] => string_len(rest),
        // `r"` or `r#"`, also after a `b` or `c`; but not the end of a name.
        [b'r', b'"' | b'#', ..]
            if !before.is_some_and(|b| is_name(b) && b != b'b' && b != b'c') =>
        {
            raw_string_len(rest)
        }
        // `'a'` and `'\n'` are characters; `'a` is a lifetime.
        [b'\'', b'\\', ..] => {
            3 + rest
                .iter()
                .skip(3)
                .position(|&byte| byte == b'\'')
                .map_or(0, |end| end + 1)
        }
        [b'\'', first, ..] => {
            let width = match first {
                0xf0.. => 4,
                0xe0.. => 3,
                0xc0.. => 2,
                _ => 1,
            };
            if rest.get(1 + width) == Some(&b'\'') {
                width + 2
            } else {
                0
            }
        }
        _ => 0,
    }
}

fn block_comment_len(rest: &[u8]) -> usize {
    let (mut at, mut depth) = (2, 1);
    while depth > 0 && at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    at.min(rest.len())
}

fn string_len(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// 0 for a raw name such as `r#type`.
fn raw_string_len(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let end: Vec<u8> = std::iter::once(b'"')
        .chain(std::iter::repeat_n(b'#', hashes))
        .collect();
    let body = &rest[2 + hashes..];
    let found = body.windows(end.len()).position(|window| window == end);
    found.map_or(rest.len(), |found| 2 + hashes + found + end.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::new("src/a.rs", text).code
    }

    #[test]
    fn only_code_is_left() {
        assert_eq!(code("a // b\nc"), "a     \nc");
        assert_eq!(code("a /* b /* c */ d */ e"), format!("a{:19}e", ""));
        assert_eq!(
            code(r#"f("x \" y", 'z', '\'', 'ö')"#),
            format!("f({:8}, {:3}, {:4}, {:4})", "", "", "", "")
        );
        assert_eq!(
            code(r###"r#"a "b"# + br"\" + x"###),
            format!("{:9} + b{:4} + x", "", "")
        );
        assert_eq!(
            code("fn f<'a>(x: &'a str) -> r#type"),
            "fn f<'a>(x: &'a str) -> r#type"
        );
        assert_eq!(code("'\\u{7f}' b'\\\\' x"), format!("{:8} b{:4} x", "", ""));
    }

    #[test]
    fn a_word_is_not_found_inside_another() {
        let source = Source::new("src/a.rs", "unsafe_code unsafe my_unsafe /* unsafe */");
        assert_eq!(source.words("unsafe").collect::<Vec<_>>(), [12]);
    }

    #[test]
    fn a_file_knows_its_room_and_its_tests() {
        assert_eq!(Source::new("src/homa/rpc.rs", "").room(), Some("homa"));
        assert_eq!(Source::new("src/time.rs", "").room(), Some("time"));
        assert_eq!(Source::new("tests/a.rs", "").room(), None);
        assert_eq!(
            Source::new("src/a.rs", "x\n#[cfg(test)]\nmod tests {}").tests_start(),
            27
        );
        assert_eq!(
            Source::new("src/a.rs", "x\n#[cfg(test)]\nmod tests {\n}").tests_start(),
            2
        );
        assert_eq!(
            Source::new("src/a.rs", "#[cfg(test)]\nmod tests;\nx").tests_start(),
            25
        );
        assert_eq!(Source::new("src/a/tests.rs", "x").tests_start(), 0);
    }
}
