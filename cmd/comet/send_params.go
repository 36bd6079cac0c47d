package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// parameters combines those of a file and those of the command line, in this order. The last
// value of a name counts.
func (s *session) parameters(file string, pairs []string) (json.RawMessage, error) {
	var names []string
	values := map[string]json.RawMessage{}
	put := func(name string, value json.RawMessage) {
		if _, known := values[name]; !known {
			names = append(names, name)
		}
		values[name] = value
	}
	if file != "" {
		if err := s.parameterFile(file, put); err != nil {
			return nil, err
		}
	}
	for _, pair := range pairs {
		name, value, ok := cutPair(pair)
		raw, isJSON := strings.CutSuffix(name, ":")
		switch {
		case !ok || raw == "":
			return nil, usagef("a parameter must be of the form NAME=TEXT or NAME:=JSON, not %q", pair)
		case !isJSON:
			put(name, json.RawMessage(quoteJSON(value)))
		case !jsontext.Value(value).IsValid():
			return nil, usagef("the parameter %s must be JSON, not %q; use %s=… for text", raw, value, raw)
		default:
			put(raw, json.RawMessage(value))
		}
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(quoteJSON(name))
		b.WriteByte(':')
		b.Write(values[name])
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// parameterFile reads the members of the object in a file.
func (s *session) parameterFile(file string, put func(name string, value json.RawMessage)) error {
	data, err := []byte(nil), error(nil)
	if file == "-" {
		data, err = io.ReadAll(s.in)
	} else {
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return usagef("the parameters cannot be read: %w", err)
	}
	if file == "-" {
		file = "standard input"
	}
	if err := checkJSON(data); err != nil {
		return usagef("%s must hold a JSON object: %w", file, err)
	}
	if jsontext.Value(data).Kind() != '{' {
		return usagef("%s must hold a JSON object", file)
	}
	dec := jsontext.NewDecoder(bytes.NewReader(data))
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		text := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			return err
		}
		put(text, json.RawMessage(bytes.Clone(value)))
	}
	return nil
}

// cutPair splits NAME=VALUE.
func cutPair(pair string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(pair, "=")
	return name, value, ok && name != ""
}

// quoteJSON is a text as JSON; invalid UTF-8 is replaced.
func quoteJSON(text string) string {
	data, _ := jsontext.AppendQuote(nil, text) // invalid UTF-8 is the only error
	return string(data)
}

// checkJSON returns an error if data is not one JSON value.
func checkJSON(data []byte) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return errors.New("it is empty")
	}
	dec := jsontext.NewDecoder(bytes.NewReader(data))
	if _, err := dec.ReadValue(); errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it ends too soon")
	} else if err != nil {
		return syntaxError(data, err)
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("something follows it")
	}
	return nil
}

// syntaxError reports a syntax error by its line instead of its offset.
func syntaxError(data []byte, err error) error {
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		return err
	}
	at := min(int(syntax.ByteOffset), len(data))
	return fmt.Errorf("%w in line %d", syntax.Err, 1+bytes.Count(data[:at], []byte("\n")))
}
