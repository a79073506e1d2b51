mod answers;
mod client;
mod faults;
mod lifecycle;
