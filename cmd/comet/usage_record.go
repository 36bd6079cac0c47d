package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// The limits of one request; a body may be a mebibyte.
const (
	batchFacts = 1000
	batchBytes = 1 << 19
)

// recordUsage records one fact from flags, or the facts of a file in batches.
func recordUsage(ctx context.Context, c *call) error {
	file := given[string](c, "file")
	if file == "" {
		return sendAndShow(ctx, c)
	}
	key, hasKey := c.sent["Idempotency-Key"]
	if delete(c.sent, "Idempotency-Key"); len(c.sent) > 0 {
		return usagef("--file replaces the flags that describe a fact; give one or the other")
	}
	data, err := c.readInput(file)
	if err != nil {
		return err
	}
	c.file = nameOf(file)
	facts, err := readFacts(data)
	if err != nil {
		return usagef("%s: %w", c.file, err)
	}
	all := recordedBatches{Facts: []json.RawMessage{}}
	for i, batch := range batches(facts) {
		c.sent["*"] = batchBody(batch)
		if hasKey {
			c.sent["Idempotency-Key"] = fmt.Sprintf("%s-%d", key, i+1)
		}
		body, err := c.send(ctx)
		if err == nil {
			err = all.add(body)
		}
		if err != nil {
			if i > 0 {
				printLine(c.messages, "the first %d facts are recorded; the others are not", len(all.Facts))
			}
			return withLines(err, batch)
		}
	}
	body, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return c.out.show(body, func() error {
		printLine(c.out.w, "recorded %s, %d already recorded; %s", count(all.Recorded, "fact", "facts"), all.Replayed, remainingText(all.balance))
		return nil
	})
}

// recordedBatches are the responses to several batches as one.
type recordedBatches struct {
	Facts    []json.RawMessage `json:"facts"`
	Recorded int               `json:"recorded"`
	Replayed int               `json:"replayed"`
	Balance  json.RawMessage   `json:"balance"`
	balance  map[string]any
}

func (r *recordedBatches) add(body []byte) error {
	var one recordedBatches
	if err := decode(body, &one); err != nil {
		return err
	}
	r.Facts = append(r.Facts, one.Facts...)
	r.Recorded, r.Replayed, r.Balance = r.Recorded+one.Recorded, r.Replayed+one.Replayed, one.Balance
	return decodeView(one.Balance, &r.balance)
}

// factText is a fact in a file.
type factText struct {
	text json.RawMessage
	line int
}

// readFacts splits a file into facts: the entries of an array, or consecutive values. The server
// validates them.
func readFacts(data []byte) (facts []factText, err error) {
	dec := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	isArray := dec.PeekKind() == '['
	if isArray {
		_, _ = dec.ReadToken() // PeekKind has read it
	}
	line, counted := 1, 0
	for !isArray || dec.PeekKind() != ']' {
		value, err := dec.ReadValue()
		if !isArray && errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			at, reason := len(bytes.TrimRight(data, " \t\r\n")), "the file ends before it is complete"
			if bad := (*jsontext.SyntacticError)(nil); errors.As(err, &bad) && !errors.Is(err, io.ErrUnexpectedEOF) {
				at, reason = int(bad.ByteOffset), bad.Err.Error()
			}
			return nil, fmt.Errorf("fact %d on line %d is not JSON: %s", len(facts)+1, 1+bytes.Count(data[:at], []byte("\n")), reason)
		}
		end := int(dec.InputOffset())
		begin := end - len(value)
		line += bytes.Count(data[counted:begin], []byte("\n"))
		facts, counted = append(facts, factText{data[begin:end], line}), begin
	}
	if isArray && len(bytes.TrimSpace(data[dec.InputOffset():])) != len("]") {
		return nil, errors.New("there is more after the array")
	}
	if len(facts) == 0 {
		return nil, errors.New("there are no facts in it")
	}
	return facts, nil
}

// batches splits facts into requests.
func batches(facts []factText) (all [][]factText) {
	begin, size := 0, 0
	for i, f := range facts {
		if i-begin == batchFacts || i > begin && size+len(f.text) > batchBytes {
			all, begin, size = append(all, facts[begin:i]), i, 0
		}
		size += len(f.text)
	}
	return append(all, facts[begin:])
}

func batchBody(batch []factText) []byte {
	texts := make([][]byte, len(batch))
	for i, f := range batch {
		texts[i] = f.text
	}
	return slices.Concat([]byte(`{"facts":[`), bytes.Join(texts, []byte(",")), []byte("]}"))
}

// withLines replaces places in a batch by lines of the file.
func withLines(err error, batch []factText) error {
	var refused *apiError
	if !errors.As(err, &refused) || refused.problem.Errors == nil {
		return err
	}
	var n uint
	for i := range *refused.problem.Errors {
		f := &(*refused.problem.Errors)[i]
		if _, err := fmt.Sscanf(*cmp.Or(f.Pointer, new("")), "/facts/%d", &n); err == nil && n < uint(len(batch)) {
			f.Line = &batch[n].line
			f.Detail = strings.ReplaceAll(f.Detail, fmt.Sprintf("facts[%d].", n), "")
		}
	}
	return err
}
