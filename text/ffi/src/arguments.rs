//! Arguments of a filter as Python passes them: by position or by name.

use minijinja::value::{Kwargs, Rest};
use minijinja::{Error, ErrorKind, Value};

pub struct Arguments {
    positional: Rest<Value>,
    named: Kwargs,
}

impl Arguments {
    pub fn new(positional: Rest<Value>, named: Kwargs, most: usize) -> Result<Arguments, Error> {
        match positional.len() > most {
            true => Err(Error::from(ErrorKind::TooManyArguments)),
            false => Ok(Arguments { positional, named }),
        }
    }

    /// The argument at `index` or called `name`; none and undefined are the default.
    pub fn get(&self, index: usize, name: &str) -> Result<Option<Value>, Error> {
        let value = match self.positional.get(index) {
            Some(value) => Some(value.clone()),
            None => self.named.get::<Option<Value>>(name)?,
        };
        Ok(value.filter(|value| !value.is_none() && !value.is_undefined()))
    }

    /// To be called when all are taken: an unknown name is an error.
    pub fn done(&self) -> Result<(), Error> {
        self.named.assert_all_used()
    }
}
