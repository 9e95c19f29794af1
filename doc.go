// Package tallyman holds the words and rules of tallyman: what a run, an
// attempt and an event are, why they end, and how they change. It does no I/O
// and needs only the standard library, so that every other room can rely on it.
//
// The life of a run:
//
//	            ┌────────────── a failed attempt with more to come ───────────┐
//	            ▼                                                             │
//	submit → queued ──admitted──► starting ──agent started──► running ──ended─┤
//	            │                    │                                        │
//	            │                    └────────────────ended──────────────────►┤
//	            └──stop──► stopped        succeeded | failed | stopped ◄──────┘
//
// Run.Apply is that picture as a function; Retry.Next decides about the arrow
// that goes back.
package tallyman
