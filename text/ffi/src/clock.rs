//! strftime over a local time that the caller passes: templates have no clock of their own.

/// A local time without a zone. Month and day count from 1.
#[derive(Clone, Copy, Debug)]
pub struct CivilTime {
    pub year: i32,
    pub month: i32,
    pub day: i32,
    pub hour: i32,
    pub minute: i32,
    pub second: i32,
}

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

impl CivilTime {
    fn is_leap(&self) -> bool {
        self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0)
    }

    /// Returns the day of the year, from 1.
    fn day_of_year(&self) -> i32 {
        const BEFORE: [i32; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let leap_day = i32::from(self.is_leap() && self.month > 2);
        BEFORE[(self.month - 1).clamp(0, 11) as usize] + self.day + leap_day
    }

    /// Returns the day of the week, 0 for Sunday (Sakamoto's method).
    fn weekday(&self) -> i32 {
        const SHIFT: [i32; 12] = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4];
        let year = if self.month < 3 { self.year - 1 } else { self.year };
        let shift = SHIFT[(self.month - 1).clamp(0, 11) as usize];
        (year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + shift + self.day).rem_euclid(7)
    }

    fn hour_of_12(&self) -> i32 {
        (self.hour + 11) % 12 + 1
    }

    /// Formats as Python's datetime.strftime does in the C locale. An unknown directive stays as it is.
    pub fn strftime(&self, format: &str) -> String {
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            match chars.next() {
                None => out.push('%'),
                // glibc's flag `-` drops the padding.
                Some('-') => match chars.next() {
                    Some(d) => {
                        let text = self.directive(d);
                        let bare = text.trim_start_matches(['0', ' ']);
                        out.push_str(if bare.is_empty() { "0" } else { bare });
                    }
                    None => out.push_str("%-"),
                },
                Some(d) => out.push_str(&self.directive(d)),
            }
        }
        out
    }

    fn directive(&self, directive: char) -> String {
        let month_name = MONTHS[(self.month - 1).clamp(0, 11) as usize];
        let day_name = DAYS[self.weekday() as usize];
        let week = |first: i32| (self.day_of_year() + 6 - (self.weekday() + 7 - first) % 7) / 7;
        match directive {
            'a' => day_name[..3].into(),
            'A' => day_name.into(),
            'b' | 'h' => month_name[..3].into(),
            'B' => month_name.into(),
            'd' => format!("{:02}", self.day),
            'e' => format!("{:2}", self.day),
            'm' => format!("{:02}", self.month),
            'y' => format!("{:02}", self.year.rem_euclid(100)),
            'Y' => self.year.to_string(),
            'H' => format!("{:02}", self.hour),
            'I' => format!("{:02}", self.hour_of_12()),
            'k' => format!("{:2}", self.hour),
            'l' => format!("{:2}", self.hour_of_12()),
            'M' => format!("{:02}", self.minute),
            'S' => format!("{:02}", self.second),
            'f' => "000000".into(),
            'p' => if self.hour < 12 { "AM" } else { "PM" }.into(),
            'j' => format!("{:03}", self.day_of_year()),
            'w' => self.weekday().to_string(),
            'u' => ((self.weekday() + 6) % 7 + 1).to_string(),
            'U' => format!("{:02}", week(0)),
            'W' => format!("{:02}", week(1)),
            'c' => self.strftime("%a %b %e %H:%M:%S %Y"),
            'D' | 'x' => self.strftime("%m/%d/%y"),
            'F' => self.strftime("%Y-%m-%d"),
            'T' | 'X' => self.strftime("%H:%M:%S"),
            'R' => self.strftime("%H:%M"),
            'n' => "\n".into(),
            't' => "\t".into(),
            'z' | 'Z' => String::new(), // a datetime without a zone
            '%' => "%".into(),
            other => format!("%{other}"),
        }
    }
}
