//! Arguments of a filter as Python passes them: by position or by name.

use minijinja::value::{Kwargs, Rest};
use minijinja::{Error, ErrorKind, Value};

pub struct Arguments {
    positional: Rest<Value>,
    named: Kwargs,
}

impl Arguments {
    /// Errors: more than `max` arguments by position.
    pub fn new(positional: Rest<Value>, named: Kwargs, max: usize) -> Result<Arguments, Error> {
        match positional.len() > max {
            true => Err(Error::from(ErrorKind::TooManyArguments)),
            false => Ok(Arguments { positional, named }),
        }
    }

    /// Returns the argument at `index` or called `name`. None: it is absent, none or undefined, so its default holds.
    pub fn get(&self, index: usize, name: &str) -> Result<Option<Value>, Error> {
        let value = match self.positional.get(index) {
            Some(value) => Some(value.clone()),
            None => self.named.get::<Option<Value>>(name)?,
        };
        Ok(value.filter(|value| !value.is_none() && !value.is_undefined()))
    }

    /// Checks, after the last `get`, that every named argument was asked for. Errors: an unknown name.
    pub fn done(&self) -> Result<(), Error> {
        self.named.assert_all_used()
    }
}
