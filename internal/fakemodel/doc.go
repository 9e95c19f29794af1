// Package fakemodel is a model server that costs nothing and does what it is
// told. It speaks the wire formats of Anthropic Messages, OpenAI Responses,
// OpenAI chat completions and Gemini, streaming and whole, so that a real
// agent CLI can be pointed at it. It is shipped as `tallyman fakemodel`, for
// tests and for smoke tests of an installation.
//
// # Where an answer comes from
//
// The first of these that applies: a rule of the Script, the directives in
// the conversation's last user message that has any, the default answer, which
// repeats the end of what was said last.
//
// Which answer is due follows from the conversation alone: it is as many
// replies on as the model has answered since the message in question. Nothing
// is remembered between calls, so a restarted server goes on where the one
// before stopped; a retry gets the same answer again. The only exception is
// what says times=N, which is counted in memory until /control/reset.
//
// # Directives
//
// A prompt scripts the model that reads it. Text outside directives is for
// people and ignored. What stands within <system-reminder> is not read.
//
//	%%say TEXT%%            text; TEXT may be a JSON string, for %% and line breaks
//	%%think TEXT%%          thinking
//	%%tool NAME {JSON}%%    a tool call; several in a row are one parallel call
//	%%agent NAME%% … %%end%%  a sub-agent call, by whichever of the tools Agent and
//	                        Task is offered; … is its prompt, with its own directives
//	%%refuse TEXT%%         text that ends with a refusal
//	%%result%%              text: what the tools answered last
//	%%flood BYTES%%         that much text
//	%%error STATUS [type=T] [retry-after=5s] [after=N] [times=N] [MESSAGE]%%
//	%%stall [5s] [after=N] [times=N]%%   silence; without a duration until the
//	                        client goes or /control/release
//	%%cut [after=N] [times=N]%%          the connection breaks
//	%%usage input=N output=N cache-read=N cache-write=N%%
//	%%stop REASON%%         end_turn, tool_use, max_tokens, stop_sequence, refusal …
//	%%chunk RUNES%%         how much text a piece of the stream carries
//	%%delay 50ms%%          between two pieces
//	%%next%%                the reply ends here
//	%%loop%%                at the very end: begin again with the first reply
//
// Directives are carried out in order, one reply per model call. A reply ends
// after its tool calls or at %%next%%; usage and stop may still follow the
// calls they are about. An error with nothing before it is the HTTP status,
// else it comes in mid stream. after=N lets N more pieces pass first. An
// error, stall or cut whose times are used up is passed over, so
// `%%error 529 times=2%% %%say hello%%` fails twice and then says hello. A
// directive that cannot be read is answered with status 400 and says why.
//
// # Scripts
//
// A script is YAML or JSON:
//
//	models: [claude-sonnet-4-5]        # what /v1/models lists
//	usage: {input: 12, output: 23}     # per call, unless a reply says otherwise
//	rules:
//	  - match: {contains: weather, model: sonnet}
//	    turns:                         # one per model call; then the rule is over
//	      - blocks:
//	          - thinking: I had better look.
//	          - tool: {name: Bash, input: {command: "echo sun"}}
//	      - blocks: [{text: "It says: "}, {toolResult: true}]
//	  - match: {matches: "(?i)fail"}
//	    times: 2                       # in the life of the server
//	    reply:
//	      blocks: [{error: {status: 429, retryAfter: 1s}}]
//
// # Control
//
//	GET  /control/stats     Stats
//	POST /control/hold      every stream waits before its next piece
//	POST /control/release   … goes on; stalls without a duration end
//	POST /control/abort     breaks the connection of every open call
//	POST /control/reset     counters, times and requests begin anew, nothing is held
//	GET  /control/requests  the last calls, oldest first, credentials masked
package fakemodel
