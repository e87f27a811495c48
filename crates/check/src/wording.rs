//! The text about two conflicting accesses.

use crate::finding::Kind;

/// One of two accesses.
#[derive(Debug)]
pub(crate) struct Said {
    /// The function or kernel.
    pub(crate) name: String,
    /// The same, and its stream.
    pub(crate) actor: String,
    pub(crate) verb: &'static str,
    /// Whether it is a call or an access of the host.
    pub(crate) is_host: bool,
}

/// Two accesses in the order of the program.
#[derive(Debug)]
pub(crate) struct Conflicting<'c> {
    pub(crate) kind: Kind,
    pub(crate) first: Said,
    pub(crate) second: Said,
    /// The stream of the second one.
    pub(crate) stream: String,
    /// What the second one is called in advice.
    pub(crate) before: &'c str,
    /// Which memory an access outside of a pool's blocks is to.
    pub(crate) outside: &'c str,
}

impl Conflicting<'_> {
    /// Says what is wrong, and what to do about it.
    pub(crate) fn message_and_advice(&self) -> (String, String) {
        (self.message(), self.advice())
    }

    fn is_freed(&self) -> bool {
        self.first.verb == "frees"
    }

    fn message(&self) -> String {
        let Said { actor: first, verb: first_verb, .. } = &self.first;
        let Said { actor, verb, .. } = &self.second;
        match self.kind {
            Kind::OutOfBounds => format!("{actor} {verb} {}", self.outside),
            Kind::UseAfterFree | Kind::HostMemoryFreed if self.is_freed() => {
                format!("{actor} {verb} memory that {first} has freed")
            }
            Kind::FreeInUse | Kind::HostMemoryFreed | Kind::IpcClosed => {
                format!("{actor} frees memory that {first} {first_verb}, and nothing orders them")
            }
            Kind::ReuseRace => {
                format!("{actor} {verb} a block that the pool handed out again while {first} {first_verb} it")
            }
            _ => format!("{actor} {verb} what {first} {first_verb}, and nothing orders them"),
        }
    }

    fn advice(&self) -> String {
        let Self { first, second, before, stream, .. } = self;
        let earlier = &first.actor;
        if self.kind == Kind::OutOfBounds {
            "Access fewer bytes, or ask the pool for more.".to_owned()
        } else if self.kind == Kind::UseAfterFree {
            format!("Free the memory after {before}, or do not use it any more.")
        } else if second.is_host {
            format!(
                "The host never waits for {earlier}: synchronize the stream, or an event after it, before {before}."
            )
        } else if first.is_host {
            format!("Wait for {} before {}, or free the memory in the order of its stream.", second.actor, first.name)
        } else {
            format!(
                "{} never waits for {earlier}: record an event after it, and let {stream} wait for the event before {before}.",
                capitalized(stream)
            )
        }
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
