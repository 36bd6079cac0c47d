package mcp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxNumber is the length in characters up to which numbers are compared by value. numberPrecision
	// is the precision of these values in bits, sufficient for all their digits.
	maxNumber       = 60
	numberPrecision = 256
)

// checkParamHeaders compares the headers Mcp-Param-* of a tools/call with the arguments to which the tool's
// schema binds them with x-mcp-header (MCP 2026-07-28). It returns the mistake, nil for none.
func (d *Handler) checkParamHeaders(r *http.Request, tool string, arguments []byte) *jsonrpc.Error {
	who, _ := r.Context().Value(identityKey{}).(identity)
	schema, err := d.server.tools.InputSchema(r.Context(), who.principal, tool)
	if err != nil || schema == nil {
		return nil //nolint:nilerr // the call fails with it
	}
	var args any
	decoder := json.NewDecoder(bytes.NewReader(arguments))
	decoder.UseNumber()
	_ = decoder.Decode(&args) // the call rejects invalid arguments
	if mistake := paramHeaderMistake(r.Header, schema, args); mistake != "" {
		return &jsonrpc.Error{Code: mcp.CodeHeaderMismatch, Message: mistake}
	}
	return nil
}

// paramHeaderMistake compares the headers with the properties of a schema, at any depth.
func paramHeaderMistake(h http.Header, schema map[string]any, args any) string {
	properties, _ := schema["properties"].(map[string]any)
	values, _ := args.(map[string]any)
	for property, definition := range properties {
		inner, _ := definition.(map[string]any)
		if mistake := paramHeaderMistake(h, inner, values[property]); mistake != "" {
			return mistake
		}
		name, _ := inner["x-mcp-header"].(string)
		if name == "" {
			continue
		}
		name = "Mcp-Param-" + name
		got, sent := h.Get(name), len(h.Values(name)) > 0
		switch value := values[property]; {
		case value == nil && sent:
			return "the header " + printable(name) + " has a value, but the argument " + printable(property) + " has none"
		case value != nil && !sent:
			return "the header " + printable(name) + " is missing; it must have the value of the argument " + printable(property)
		case value != nil && !equalsHeader(value, got):
			return "the header " + printable(name) + " does not agree with the argument " + printable(property)
		}
	}
	return ""
}

// equalsHeader reports whether a header, in Base64 if it has the form =?base64?…?=, has the value of an argument.
func equalsHeader(value any, header string) bool {
	if text, ok := strings.CutPrefix(header, "=?base64?"); ok && strings.HasSuffix(text, "?=") {
		decoded, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(text, "?="))
		if err != nil {
			return false
		}
		header = string(decoded)
	}
	switch v := value.(type) {
	case string:
		return header == v
	case bool:
		return header == strconv.FormatBool(v)
	case json.Number:
		if len(header) > maxNumber || len(v) > maxNumber {
			return header == v.String()
		}
		x, _, err := big.ParseFloat(header, 10, numberPrecision, big.ToNearestEven)
		y, _, valueErr := big.ParseFloat(v.String(), 10, numberPrecision, big.ToNearestEven)
		if err != nil || valueErr != nil { // the exponent is too large
			return header == v.String()
		}
		return x.Cmp(y) == 0
	}
	return false
}
