// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Errors as the kernel's C has them: small negative numbers.

use crate::alloc::AllocError;
use core::convert::Infallible;
use core::ffi::c_int;
use core::fmt;

/// The largest number that C takes for an error.
const MAX_ERRNO: c_int = 4095;

/// An errno, held as C returns it: from -4095 to -1.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Error(c_int);

/// A value, or why there is none.
pub type Result<T = (), E = Error> = core::result::Result<T, E>;

impl Error {
    /// The error that C returned as `errno`. What is none becomes `EINVAL`.
    pub const fn from_errno(errno: c_int) -> Self {
        if errno < 0 && errno >= -MAX_ERRNO {
            Self(errno)
        } else {
            code::EINVAL
        }
    }

    /// What C returns for this error: negative.
    pub const fn to_errno(self) -> c_int {
        self.0
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Error").field(&-self.0).finish()
    }
}

impl From<AllocError> for Error {
    fn from(_: AllocError) -> Self {
        code::ENOMEM
    }
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// The errors by name. The numbers are the same on every architecture that NVIDIA's
/// driver runs on.
pub mod code {
    use super::Error;

    macro_rules! codes {
        ($($name:ident = $number:literal, $meaning:literal;)*) => {
            $(
                #[doc = $meaning]
                pub const $name: Error = Error(-$number);
            )*
        };
    }

    codes! {
        EPERM = 1, "Not permitted.";
        ENOENT = 2, "There is no such thing.";
        EINTR = 4, "A signal came.";
        EIO = 5, "Input or output failed.";
        ENXIO = 6, "There is no such device or address.";
        E2BIG = 7, "Too long.";
        EAGAIN = 11, "Try again.";
        ENOMEM = 12, "Memory could not be had.";
        EACCES = 13, "Access is denied.";
        EFAULT = 14, "A bad address.";
        EBUSY = 16, "In use.";
        EEXIST = 17, "It exists already.";
        ENODEV = 19, "There is no such device.";
        EINVAL = 22, "An invalid argument.";
        ENOTTY = 25, "No such ioctl.";
        ENOSPC = 28, "No space is left.";
        EPIPE = 32, "The other end is gone.";
        ERANGE = 34, "The result cannot be represented.";
        EOVERFLOW = 75, "The value is too large for its type.";
        EOPNOTSUPP = 95, "Not supported here.";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errnos_are_errors() {
        for bad in [0, 1, 22, -4096, c_int::MIN, c_int::MAX] {
            assert_eq!(Error::from_errno(bad), code::EINVAL, "{bad}");
        }
        for good in [-1, -22, -4095] {
            assert_eq!(Error::from_errno(good).to_errno(), good);
        }
        assert_eq!(Error::from(AllocError), code::ENOMEM);
        assert_eq!(std::format!("{:?}", code::EBUSY), "Error(16)");
    }
}
