//! Text of a page in HTML. Markup comes only from literals of this program; everything else is escaped on its way in, so no name
//! of the checked program can become markup.

use std::fmt::{self, Display, Write};

#[derive(Default)]
pub(super) struct Markup(String);

impl Markup {
    /// Appends markup.
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Appends text, which may be part of an attribute in quotes.
    pub(super) fn text(&mut self, text: impl Display) -> &mut Self {
        write!(Escaped(&mut self.0), "{text}").expect("a string can be written");
        self
    }

    /// Appends text between markup.
    pub(super) fn within(&mut self, before: &'static str, text: impl Display, after: &'static str) -> &mut Self {
        self.raw(before).text(text).raw(after)
    }

    pub(super) fn append(&mut self, other: &Self) -> &mut Self {
        self.0.push_str(&other.0);
        self
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            match letter {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\n' => self.0.push('\n'),
                // HTML has no such characters, or they reverse the text that follows.
                '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => self.0.push('\u{fffd}'),
                control if control.is_control() => self.0.push('\u{fffd}'),
                plain => self.0.push(plain),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_never_markup() {
        let mut page = Markup::default();
        page.raw("<p title=\"").text("\"'>").raw("\">").text("<script>&amp;\0\x1b\u{202e}\u{e9}").raw("</p>");
        let expected = "<p title=\"&quot;&#39;&gt;\">&lt;script&gt;&amp;amp;\u{fffd}\u{fffd}\u{fffd}\u{e9}</p>";
        assert_eq!(page.into_string(), expected);
    }
}
