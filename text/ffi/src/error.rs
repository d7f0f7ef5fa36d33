//! The failure of a call: a status of baton_text.h and a sentence for the user.

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    Ok = 0,
    Invalid = 1,
    Exhausted = 2,
    Internal = 3,
    Late = 4,
}

pub struct Failure {
    pub status: Status,
    pub text: String,
}

impl Failure {
    pub fn invalid(text: impl Into<String>) -> Failure {
        Failure { status: Status::Invalid, text: text.into() }
    }

    pub fn exhausted(text: impl Into<String>) -> Failure {
        Failure { status: Status::Exhausted, text: text.into() }
    }
}
