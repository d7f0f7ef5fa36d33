//! The moment at which a call gives up.

use crate::error::{Failure, Status};
use minijinja::{Error, ErrorKind};
use std::time::{Duration, Instant};

/// Plain data, so that closures of a template can carry it.
#[derive(Clone, Copy)]
pub struct Deadline(Option<Instant>);

/// The error of a template that runs into the deadline.
#[derive(Debug)]
pub struct Late;

impl std::fmt::Display for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the time is up")
    }
}

impl std::error::Error for Late {}

/// The failure of what did not end in time.
pub fn late(what: &str) -> Failure {
    Failure { status: Status::Late, text: format!("{what} took longer than the time it has") }
}

impl Deadline {
    /// `nanoseconds` from now; u64::MAX: none.
    pub fn after(nanoseconds: u64) -> Deadline {
        if nanoseconds == u64::MAX {
            return Deadline(None);
        }
        Deadline(Instant::now().checked_add(Duration::from_nanos(nanoseconds)))
    }

    pub fn is_over(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }

    pub fn check(self, what: &str) -> Result<(), Failure> {
        match self.is_over() {
            true => Err(late(what)),
            false => Ok(()),
        }
    }

    /// `check` for functions of a template.
    pub fn check_in_template(self) -> Result<(), Error> {
        match self.is_over() {
            true => Err(Error::new(ErrorKind::InvalidOperation, "the time is up").with_source(Late)),
            false => Ok(()),
        }
    }
}
