// Command mcpserver is an MCP server over standard input and output with one
// tool, add, which adds two numbers. With -refuse it answers initialize with
// an error, as a server does that cannot start.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

type request struct {
	ID     json.RawMessage `json:"id"` // absent in a notification
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

type response struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func main() {
	refuse := flag.Bool("refuse", false, "answer initialize with an error")
	flag.Parse()
	if err := serve(os.Stdin, os.Stdout, *refuse); err != nil {
		fmt.Fprintln(os.Stderr, "mcpserver:", err)
		os.Exit(1)
	}
}

// serve answers one message a line until the input ends.
func serve(in io.Reader, out io.Writer, refuse bool) error {
	lines := bufio.NewReader(in)
	answers := json.NewEncoder(out)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a message: %w", err)
		}
		var req request
		if err := json.Unmarshal(line, &req); err != nil {
			return fmt.Errorf("read a message: %w", err)
		}
		if req.ID == nil {
			continue
		}
		answer := response{JSONRPC: "2.0", ID: req.ID}
		answer.Result, answer.Error = handle(req, refuse)
		if err := answers.Encode(answer); err != nil {
			return fmt.Errorf("write an answer: %w", err)
		}
	}
}

func handle(req request, refuse bool) (any, *rpcError) {
	switch req.Method {
	case "initialize":
		if refuse {
			return nil, &rpcError{Code: -32603, Message: "refused, as asked"}
		}
		var p struct {
			ProtocolVersion string `json:"protocolVersion"`
		}
		if err := json.Unmarshal(req.Params, &p); err != nil {
			return nil, &rpcError{Code: -32602, Message: err.Error()}
		}
		return map[string]any{
			"protocolVersion": p.ProtocolVersion,
			"capabilities":    map[string]any{"tools": map[string]any{}},
			"serverInfo":      map[string]any{"name": "sums", "version": "1.0.0"},
		}, nil
	case "ping":
		return map[string]any{}, nil
	case "tools/list":
		number := map[string]any{"type": "number"}
		return map[string]any{"tools": []any{map[string]any{
			"name": "add", "description": "Adds two numbers.",
			"inputSchema": map[string]any{
				"type": "object", "required": []string{"a", "b"},
				"properties": map[string]any{"a": number, "b": number},
			},
		}}}, nil
	case "tools/call":
		return add(req.Params)
	default:
		return nil, &rpcError{Code: -32601, Message: "no such method: " + req.Method}
	}
}

func add(params json.RawMessage) (any, *rpcError) {
	var p struct {
		Name      string `json:"name"`
		Arguments struct{ A, B float64 }
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, &rpcError{Code: -32602, Message: err.Error()}
	}
	if p.Name != "add" {
		return nil, &rpcError{Code: -32602, Message: "no such tool: " + p.Name}
	}
	sum := fmt.Sprintf("%g + %g = %g", p.Arguments.A, p.Arguments.B, p.Arguments.A+p.Arguments.B)
	return map[string]any{"content": []any{map[string]any{"type": "text", "text": sum}}}, nil
}
