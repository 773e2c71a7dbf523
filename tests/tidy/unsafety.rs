//! `unsafe` lives in few rooms and says why it is right.

use crate::source::{Finding, Source};

/// The rooms that talk to C or lend memory.
const ALLOWED: &[&str] = &["mem", "dpdk", "capi"];

pub fn only_where_allowed(source: &Source) -> Vec<Finding> {
    let Some(room) = source.room().filter(|_| source.is_rust()) else {
        return Vec::new(); // dpdk-sys is all C; tests and examples call the C face.
    };
    if ALLOWED.contains(&room) {
        return Vec::new();
    }
    let what = "`unsafe` belongs in mem, dpdk or capi; let one of them offer a safe face";
    source
        .words("unsafe")
        .map(|at| source.finding(at, what))
        .collect()
}

pub fn says_why(source: &Source) -> Vec<Finding> {
    if !source.is_rust() {
        return Vec::new();
    }
    source
        .words("unsafe")
        .filter_map(|at| unexplained(source, at))
        .collect()
}

pub fn never(source: &Source) -> Vec<Finding> {
    if !source.is_rust() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for at in source.words("static mut") {
        findings.push(source.finding(at, "no `static mut`; keep it in a value, or a thread_local"));
    }
    for at in source.words("unsafe impl") {
        let head = source.code[at..].split('{').next().unwrap_or_default();
        if ["Send", "Sync"]
            .iter()
            .any(|name| head.split(is_no_name).any(|word| word == *name))
        {
            let what = "no `unsafe impl Send` or `Sync`; hand over plain data instead";
            findings.push(source.finding(at, what));
        }
    }
    findings
}

fn is_no_name(c: char) -> bool {
    !c.is_alphanumeric() && c != '_'
}

fn unexplained(source: &Source, at: usize) -> Option<Finding> {
    let after = source.code[at + "unsafe".len()..].trim_start();
    if after.starts_with('(') {
        return None; // `#[unsafe(no_mangle)]` has nothing to explain.
    }
    let is_function = match after.split_once("fn") {
        Some((before, rest)) if is_abi(before) => {
            if rest.trim_start().starts_with('(') {
                return None; // The type of a function pointer.
            }
            true
        }
        Some(_) | None => false,
    };
    let line = source.line_of(at);
    if is_function || after.starts_with("trait") {
        // A function inside an `extern` block is declared, not defined; the block has the comment.
        let explained = has_doc(source, line) || is_exported_to_c(source, after);
        let what = "an `unsafe` function needs a `# Safety` section that says what callers owe";
        (!explained).then(|| source.finding(at, what))
    } else {
        let explained = has_comment(source, line);
        let what = "`unsafe` needs a `// SAFETY:` above it that says who upholds what";
        (!explained).then(|| source.finding(at, what))
    }
}

/// What C may pass holds for a whole file of such functions, so its head may say it once.
fn is_exported_to_c(source: &Source, after: &str) -> bool {
    after.starts_with("extern")
        && source
            .text
            .lines()
            .any(|line| line.starts_with("//! # Safety"))
}

/// Nothing but `extern` between `unsafe` and `fn`: its string was blanked out.
fn is_abi(text: &str) -> bool {
    matches!(text.trim(), "" | "extern")
}

/// Looks up through the statement that holds the line, and the comment above it.
fn has_comment(source: &Source, line: usize) -> bool {
    let text: Vec<&str> = source.text.lines().collect();
    let code: Vec<&str> = source.code.lines().collect();
    if text[line - 1].contains("SAFETY:") {
        return true;
    }
    for above in (0..line - 1).rev() {
        let is_code = !code[above].trim().is_empty();
        if text[above].contains("SAFETY:") && !is_code {
            return true;
        }
        let ends_statement = code[above].trim_end().ends_with([';', '{', '}', ',']);
        if (is_code && ends_statement) || text[above].trim().is_empty() {
            return false;
        }
    }
    false
}

/// Looks up through documentation and attributes.
fn has_doc(source: &Source, line: usize) -> bool {
    let text: Vec<&str> = source.text.lines().collect();
    text[..line - 1]
        .iter()
        .rev()
        .map(|above| above.trim())
        .take_while(|above| above.starts_with("//") || above.starts_with("#["))
        .any(|above| above.contains("# Safety") || above.contains("SAFETY:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(rule: fn(&Source) -> Vec<Finding>, path: &str, text: &str) -> Vec<usize> {
        rule(&Source::new(path, text))
            .iter()
            .map(|finding| finding.line)
            .collect()
    }

    #[test]
    fn unsafe_outside_its_rooms_is_found() {
        assert_eq!(
            lines(only_where_allowed, "src/net/a.rs", "\nunsafe { f() }"),
            [2]
        );
        assert_eq!(
            lines(only_where_allowed, "src/mem/a.rs", "unsafe { f() }"),
            []
        );
        assert_eq!(
            lines(only_where_allowed, "src/lib.rs", "#![forbid(unsafe_code)]"),
            []
        );
    }

    #[test]
    fn a_block_without_a_reason_is_found() {
        for bad in [
            "let a = unsafe { f() };",
            "// SAFETY: of another.\nlet b = 1;\nlet a = unsafe { f() };",
            "// SAFETY: too far away.\n\nunsafe impl Trait for A {}",
            "unsafe extern \"C\" {}",
        ] {
            assert_eq!(lines(says_why, "src/mem/a.rs", bad).len(), 1, "{bad}");
        }
        for good in [
            "// SAFETY: f is harmless.\nlet a = unsafe { f() };",
            "// SAFETY: f is\n// harmless.\nlet a =\n    unsafe { f() };",
            "unsafe { f() } // SAFETY: f is harmless.",
            "#[unsafe(no_mangle)]\nfn g() {}",
            "type F = unsafe extern \"C\" fn(i32);",
        ] {
            assert_eq!(lines(says_why, "src/mem/a.rs", good), [], "{good}");
        }
    }

    #[test]
    fn a_function_must_say_what_its_callers_owe() {
        assert_eq!(
            lines(says_why, "src/mem/a.rs", "/// Does it.\nunsafe fn f() {}"),
            [2]
        );
        assert_eq!(
            lines(
                says_why,
                "src/mem/a.rs",
                "pub unsafe extern \"C\" fn f() {}"
            ),
            [1]
        );
        let good =
            "/// Does it.\n///\n/// # Safety\n/// `p` is valid.\n#[inline]\npub unsafe fn f() {}";
        assert_eq!(lines(says_why, "src/mem/a.rs", good), []);
    }

    #[test]
    fn what_is_never_allowed_is_found() {
        assert_eq!(lines(never, "src/mem/a.rs", "static mut A: u8 = 0;"), [1]);
        assert_eq!(
            lines(never, "src/mem/a.rs", "\nunsafe impl<T> Send for A<T> {}"),
            [2]
        );
        assert_eq!(
            lines(never, "src/mem/a.rs", "unsafe impl Sync for A {}"),
            [1]
        );
        assert_eq!(
            lines(never, "src/mem/a.rs", "unsafe impl Allocator for Sender {}"),
            []
        );
    }
}
