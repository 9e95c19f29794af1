package cli

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tidwall/gjson"

	"github.com/tallyman-dev/tallyman"
)

// decodeEvent reads what a transcript shows of an event's line. A chatty
// command writes a hundred megabytes a second, which encoding/json does not
// read; the raw line of an event is left unread.
func decodeEvent(line []byte) (tallyman.EventID, tallyman.Event, error) {
	var e tallyman.Event
	var id, at string
	var err error
	gjson.ParseBytes(line).ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "id":
			id = v.Str
		case "time":
			at = v.Str
		case "type":
			e.Type = tallyman.EventType(v.Str)
		case "turn":
			e.Turn = int(v.Int())
		case "parent":
			e.Parent = v.Str
		case "tool_id":
			e.ToolID = v.Str
		case "name":
			e.Name = v.Str
		case "text":
			e.Text = v.Str
		case "failed":
			e.Failed = v.Bool()
		case "partial":
			e.Partial = v.Bool()
		case "usage":
			err = json.Unmarshal([]byte(v.Raw), &e.Usage)
		case "data":
			e.Data = json.RawMessage(v.Raw)
		case "raw_b64":
			err = json.Unmarshal([]byte(v.Raw), &e.RawB64)
		case "raw_cut":
			err = json.Unmarshal([]byte(v.Raw), &e.RawCut)
		}
		return err == nil
	})
	if err == nil {
		e.Time, err = time.Parse(time.RFC3339Nano, at)
	}
	if err != nil {
		return tallyman.EventID{}, e, fmt.Errorf("read an event: %w", err)
	}
	event, err := tallyman.ParseEventID(id)
	return event, e, err
}
