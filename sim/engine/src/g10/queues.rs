use super::*;
pub(super) fn flashneuron(_v: &view::View, _m: &Machine) -> Result<Outcome, RunError> { Err(RunError::Unsupported("x".into())) }
pub(super) fn g10(_v: &view::View, _m: &Machine, _x: plan::Variant) -> Result<Outcome, RunError> { Err(RunError::Unsupported("x".into())) }
