//! Real processes on loopback: the binary's routers in front of the binary's engines.

mod fleet;
mod hit_rate;
mod lifecycle;
mod process;
