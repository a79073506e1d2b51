//! `GET /api/v1/events`: the fleet and recent decisions as server-sent events.
//!
//! A subscriber has a task that makes its events and a channel of a few of them. When the channel stays full
//! the subscriber is slow: its task ends, and with it the stream; it may come again. Peers are asked at most
//! once a second however many subscribe.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{MissedTickBehavior, interval};

use super::Admin;
use super::decisions::DecisionList;
use super::fleet_view::Fleet;
use super::survey::Observatory;
use super::views::refuse;

/// Subscribers, at most.
const MAX_SUBSCRIBERS: usize = 64;

/// Events that may wait for a subscriber.
const BACKLOG: usize = 4;

/// A subscriber that takes nothing for so long is cut off.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time between two events with decisions.
const TICK: Duration = Duration::from_millis(500);

/// Ticks between two pictures of the fleet.
const FLEET_TICKS: u64 = 4;

/// Decisions in one event, at most.
const DECISIONS: usize = 20;

/// Decisions in the first one, so that the list is not empty on a calm router.
const FIRST_DECISIONS: usize = 50;

/// Silence after which a comment keeps the connection awake.
const PING: Duration = Duration::from_secs(10);

/// Who is subscribed.
#[derive(Clone, Debug)]
pub(super) struct Subscribers(Arc<Semaphore>);

impl Default for Subscribers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_SUBSCRIBERS)))
    }
}

/// Subscribes.
pub(super) async fn subscribe(State(admin): State<Arc<Admin>>) -> Response {
    let Ok(place) = Arc::clone(&admin.subscribers.0).try_acquire_owned() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "too many subscribers: try again later");
    };
    let (events, coming) = mpsc::channel(BACKLOG);
    tokio::spawn(tell(Arc::clone(&admin.observatory), events, place));
    let events = stream::unfold(coming, |mut coming| async move {
        let event: Event = coming.recv().await?;
        Some((Ok::<_, Infallible>(event), coming))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(PING).text("ping")).into_response()
}

/// Makes events until the subscriber has gone, is too slow, or the router goes away.
async fn tell(observatory: Arc<Observatory>, events: mpsc::Sender<Event>, _place: OwnedSemaphorePermit) {
    let mut teller = Teller::default();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for tick in 0u64.. {
        tokio::select! {
            _ = ticks.tick() => {}
            () = events.closed() => return,
        }
        let mut due = Vec::new();
        if tick % FLEET_TICKS == 0 {
            due.push(event("fleet", &teller.fleet(&*observatory.fleet().await)));
        }
        due.extend(teller.decisions(&observatory).map(|list| event("decisions", &list)));
        let over = observatory.is_draining();
        if over {
            due.push(Event::default().event("bye").data("{}"));
        }
        for event in due {
            if events.send_timeout(event, PATIENCE).await.is_err() {
                return;
            }
        }
        if over {
            return;
        }
    }
}

/// What a subscriber has been told.
#[derive(Default)]
struct Teller {
    points_after: u64,
    decisions_after: u64,
    skipped: u64,
}

impl Teller {
    /// The fleet with those points alone that are new.
    fn fleet(&mut self, fleet: &Fleet) -> Fleet {
        let mut news = fleet.clone();
        news.points.retain(|point| point.at_ms > self.points_after);
        self.points_after = news.points.last().map_or(self.points_after, |point| point.at_ms);
        news
    }

    /// The newest decisions, if there are any; those that found no room count as skipped.
    fn decisions(&mut self, observatory: &Observatory) -> Option<DecisionList> {
        let first = self.decisions_after == 0;
        let most = if first { FIRST_DECISIONS } else { DECISIONS };
        let mut list = observatory.decisions(self.decisions_after, most);
        let newest = list.decisions.first()?.seq?;
        let skipped_before = std::mem::replace(&mut self.skipped, list.skipped);
        let left_out = (newest - self.decisions_after).saturating_sub(list.decisions.len() as u64);
        // What was before the subscription was not skipped by it.
        list.skipped = if first { 0 } else { list.skipped.saturating_sub(skipped_before) + left_out };
        self.decisions_after = newest;
        Some(list)
    }
}

fn event(name: &str, data: &impl Serialize) -> Event {
    // Plain data with string keys can always be written as JSON.
    Event::default().event(name).json_data(data).unwrap_or_else(|_| Event::default().comment("lost"))
}
