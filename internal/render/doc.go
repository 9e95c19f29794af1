// Package render turns a run's events into the lines that people read: the
// same in a terminal, in a Pod's log and in the browser.
//
// A Renderer makes neutral Lines out of events; a Printer writes them as plain
// text; the browser's page makes HTML of them. Whatever an agent wrote is
// cleaned of terminal escapes before it is in a Line, but for Line.Raw.
package render
