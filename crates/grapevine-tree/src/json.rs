//! JSON scanning without building a tree of values.
