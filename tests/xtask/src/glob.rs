// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The patterns of `tests/skips`, in which `*` and `?` mean what they do in a shell.

/// Says whether the pattern matches the whole text; `*` is any text, `?` any one byte.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where the last `*` stands, and how far it reaches in the text.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, reach)) = star else {
                    return false;
                };
                star = Some((at, reach + 1));
                p = at + 1;
                t = reach + 1;
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_and_question_marks_are_those_of_a_shell() {
        for (pattern, text) in [
            ("a", "a"),
            ("*", ""),
            ("*/ladder", "rust/ladder"),
            ("*/ladder", "versions/580/ladder"),
            ("a*b*c", "a--b-c-bc"),
            ("rust/?", "rust/a"),
            ("suite: counters (*)", "suite: counters (a)"),
            ("5.7: reused, *", "5.7: reused, x"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("a", "ab"),
            ("ab", "a"),
            ("", "a"),
            ("*/ladder", "rust/ladder-full"),
            ("rust/?", "rust/ab"),
            ("a*b*c", "a-c-b"),
            ("5.7", "507"),
        ] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
