//! Where the transport comes from: a UDP socket that is bound once, or the caller.

use std::net::SocketAddr;
use std::sync::Arc;

use chitchat::transport::Transport;
use tracing::{debug, warn};

use crate::config::MeshConfig;
use crate::counters::Counters;
use crate::net::UdpGossip;
use crate::net::direct::Direct;
use crate::net::metered::Metered;

/// Where the transport comes from.
pub(crate) enum Port {
    Udp { bound: Option<Arc<UdpGossip>>, warned: bool },
    Given { transport: Arc<Metered>, direct: Option<Arc<dyn Direct>> },
}

impl Port {
    /// A UDP port that is still to be bound.
    pub(crate) fn udp() -> Self {
        Self::Udp { bound: None, warned: false }
    }

    /// The bound address, if there is one by now.
    pub(crate) async fn bind(&mut self, config: &MeshConfig, counters: &Arc<Counters>) -> Option<SocketAddr> {
        let Self::Udp { bound, warned } = self else { return Some(config.listen) };
        if bound.is_none() {
            match UdpGossip::bind(config, counters.clone()).await {
                Ok(gossip) => *bound = Some(Arc::new(gossip)),
                Err(error) if *warned => debug!(listen = %config.listen, %error, "gossip port still busy"),
                Err(error) => {
                    *warned = true;
                    warn!(listen = %config.listen, %error, "cannot bind GRAPEVINE_GOSSIP_LISTEN: serving alone, trying on");
                }
            }
        }
        bound.as_ref()?.local_addr().ok()
    }

    pub(crate) fn transport(&self) -> Option<Arc<dyn Transport>> {
        match self {
            Self::Udp { bound, .. } => bound.clone().map(|it| it as Arc<dyn Transport>),
            Self::Given { transport, .. } => Some(transport.clone()),
        }
    }

    /// What carries messages straight to peers, if anything does.
    pub(crate) fn direct(&self) -> Option<Arc<dyn Direct>> {
        match self {
            Self::Udp { bound, .. } => bound.clone().map(|it| it as Arc<dyn Direct>),
            Self::Given { direct, .. } => direct.clone(),
        }
    }

    /// Whether messages can go straight to peers, once it is bound.
    pub(crate) fn is_direct(&self) -> bool {
        matches!(self, Self::Udp { .. } | Self::Given { direct: Some(_), .. })
    }

    pub(crate) fn is_udp(&self) -> bool {
        matches!(self, Self::Udp { .. })
    }
}
