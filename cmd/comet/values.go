package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// parseNumber reads a whole number. A number that exceeds 64 bits becomes the nearest one of 64 bits.
func parseNumber(text string) (any, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return nil, fmt.Errorf("%q is not a whole number", text)
	}
	return n, nil
}

func parseBool(text string) (any, error) {
	v, err := strconv.ParseBool(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not true or false", text)
	}
	return v, nil
}

// parseDuration reads a duration such as 90s, 1h30m or 2d; a day has 24 hours.
func parseDuration(text string) (time.Duration, error) {
	inHours := regexp.MustCompile(`(\d+)d`).ReplaceAllStringFunc(text, func(days string) string {
		n, err := strconv.Atoi(strings.TrimSuffix(days, "d"))
		if err != nil || n > 100_000 {
			return days
		}
		return strconv.Itoa(24*n) + "h"
	})
	d, err := time.ParseDuration(inHours)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as 90s, 2h or 3d", text)
	}
	return d, nil
}

// parseUnits reads a duration as a whole number of units.
func parseUnits(text string, unit time.Duration) (any, error) {
	d, err := parseDuration(text)
	if err != nil {
		return nil, err
	}
	if d%unit != 0 {
		return nil, fmt.Errorf("%q is not a whole number of %s", text, map[time.Duration]string{time.Second: "seconds", time.Millisecond: "milliseconds"}[unit])
	}
	return int64(d / unit), nil
}

// parseGoDuration reads a duration that is sent as text.
func parseGoDuration(_ *session, text string) (any, error) {
	d, err := parseDuration(text)
	return d.String(), err
}

// parseNot reads a flag that sends the opposite.
func parseNot(_ *session, text string) (any, error) {
	v, err := strconv.ParseBool(text)
	return !v, err
}

// parsePairs reads NAME=value or 'Name: value'. Its errors do not repeat the pair, which may
// be a secret.
func parsePairs(pairs []string, separator string) (any, error) {
	out := map[string]string{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, separator)
		if !ok || name == "" {
			form := map[string]string{"=": "NAME=value", ":": "'Name: value'"}[separator]
			return nil, fmt.Errorf("a value must have the form %s", form)
		}
		if separator == ":" {
			value = strings.TrimSpace(value)
		}
		out[name] = value
	}
	return out, nil
}

// parseTime reads a time, or a day, which begins at midnight UTC.
func parseTime(text string) (any, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		at, err = time.Parse(time.DateOnly, text)
	}
	if err != nil {
		return nil, fmt.Errorf("%q is not a time such as 2026-01-11T00:00:00Z or a day such as 2026-01-11", text)
	}
	return at.Format(time.RFC3339), nil
}

// parseTimeOrAgo reads a time, a day or how long ago it was.
func parseTimeOrAgo(text string) (any, error) {
	if ago, err := parseDuration(text); err == nil {
		return time.Now().UTC().Add(-ago).Format(time.RFC3339), nil
	}
	if ago := slices.Index([]string{"today", "yesterday"}, text); ago >= 0 {
		text = time.Now().UTC().AddDate(0, 0, -ago).Format(time.DateOnly)
	}
	at, err := parseTime(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a time such as 2026-01-11T00:00:00Z, a day such as 2026-01-11 or yesterday, or a duration such as 2h", text)
	}
	return at, nil
}

// parseFromNow reads how long from now a time is.
func parseFromNow(text string) (any, error) {
	d, err := parseDuration(text)
	return time.Now().UTC().Add(d).Format(time.RFC3339), err
}

// nilIf returns nil, which is null in the request, for the text that stands for it.
func nilIf(nothing, text string) any {
	if text == nothing {
		return nil
	}
	return text
}

func parseUUID(_ *session, text string) (any, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a UUID", text)
	}
	return id, nil
}

// parseToolClass reads the class of a tool; with none its annotations decide.
func parseToolClass(_ *session, text string) (any, error) {
	if !slices.Contains(toolClasses(), text) {
		return nil, fmt.Errorf("%q is not read, write, destructive or none", text)
	}
	return nilIf("none", text), nil
}

func toolClasses() []string { return []string{"read", "write", "destructive", "none"} }

// parseJSON reads a JSON value: the text, the file that it names after @, or standard input if
// it is "-".
func parseJSON(s *session, text string) (any, error) {
	data := []byte(text)
	var err error
	if name, ok := strings.CutPrefix(text, "@"); ok || text == "-" {
		data, err = s.readInput(name)
	}
	if err != nil {
		return nil, err
	}
	if !json.Valid(data) {
		return nil, errors.New(`the value is not JSON such as '{"page": 1}'`)
	}
	return json.RawMessage(data), nil
}

// parseSecret returns the text, or reads standard input if it is "-".
func parseSecret(s *session, text string) (any, error) {
	if text != "-" {
		return text, nil
	}
	data, err := s.readInput(text)
	return strings.TrimSpace(string(data)), err
}

func parseTextFile(s *session, name string) (any, error) {
	data, err := s.readInput(name)
	return string(data), err
}

// parseKeyFile reads a key from a file. One trailing line break is not part of the key.
func parseKeyFile(s *session, name string) (any, error) {
	data, err := s.readInput(name)
	if err != nil {
		return "", err
	}
	key := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case !utf8.ValidString(key): // JSON cannot hold it unchanged
		return "", errors.New("the key must be text in UTF-8")
	case key == "":
		return "", fmt.Errorf("the file %s contains no key", name)
	case strings.Contains(key, "PRIVATE KEY-----"):
		return "", errors.New(`a private key must not be sent; "openssl pkey -pubout -in KEY-FILE" prints its public key`)
	}
	return key, nil
}

func texts(v any) []string {
	if list, ok := v.([]string); ok {
		return list
	}
	return []string{fmt.Sprint(v)}
}

// readInput reads a file, or standard input for "-", which only one flag or argument can have.
func (s *session) readInput(path string) ([]byte, error) {
	if path == "-" {
		read := s.in
		if s.in = nil; read == nil {
			return nil, usagef("standard input can be read for one flag or argument, not both")
		}
		return read()
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, usageError{err}
	}
	return data, nil
}

// readUntilDone reads r to its end, or until ctx ends, because a read from a terminal blocks.
func readUntilDone(ctx context.Context, r io.Reader) ([]byte, error) {
	var all []byte
	var failed error
	read := make(chan struct{})
	go func() { // ends with the read, or with the program
		defer close(read)
		all, failed = io.ReadAll(r)
	}()
	select {
	case <-read:
		return all, failed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
