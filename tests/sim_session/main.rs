//! Multipath sessions in virtual time, over the real transport and the real loop. Stories are those
//! of the field; where a bug of another implementation taught us something, its test says so.

mod alive;
mod chaos;
mod failover;
mod hostile;
mod liar;
mod life;
mod nopath;
mod restart;
mod rig;
mod storm;
