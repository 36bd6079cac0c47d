package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"comet/internal/wire/v5"
)

// pagesAtOnce is how many pages one request asks for.
const pagesAtOnce = 500

// result fetches what DATA has no room for: a result that is src=#REF:<its TID>:raw.
func (c *Client) result(ctx context.Context, reply *LineReply) error {
	m, err := v5.Parse(reply.Line)
	if err != nil {
		return err
	}
	src, _ := m.Data.Get("src")
	if src != (v5.Ref{Kind: v5.RefTask, Task: m.Task, Field: "raw"}).String() {
		return nil
	}
	// Where it is only DATA that refers to itself (PROTOCOL_V5 §12.1), that is what comes.
	reply.Output, err = c.text(ctx, reply.request.From, m)
	var refused *Refused
	if errors.As(err, &refused) && reply.Task.Version() != 0 { // it is longer than pages go
		reply.Output, err = c.whole(ctx, reply.Task.String())
	}
	return err
}

// whole reads a result over the REST API.
func (c *Client) whole(ctx context.Context, task string) (string, error) {
	resp, err := c.get(ctx, "/api/v1/tasks/"+task+"/output", url.Values{})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return string(data), err
}

// text reads the pages of a task's result.
func (c *Client) text(ctx context.Context, from v5.Address, of v5.Message) (string, error) {
	var out strings.Builder
	pages := 1
	for next := 1; next <= pages; {
		var lines []string
		for n := next; n <= pages && len(lines) < pagesAtOnce; n++ {
			line, err := pageLine(from, of, n)
			if err != nil {
				return "", err
			}
			lines = append(lines, line)
		}
		answers, _, _, err := c.sayOwn(ctx, 0, lines)
		if err != nil {
			return "", err
		}
		if len(answers) != len(lines) {
			return "", fmt.Errorf("the server answers %d lines with %d", len(lines), len(answers))
		}
		for _, answer := range answers {
			m, err := v5.Parse(answer)
			if err != nil {
				return "", fmt.Errorf("the server's answer cannot be understood: %w", err)
			}
			if pages, err = pageIn(m, next, &out); err != nil {
				return "", err
			}
			next++
		}
	}
	return out.String(), nil
}

// pageLine asks for one page.
func pageLine(from v5.Address, of v5.Message, page int) (string, error) {
	data, err := new(v5.Writer).Add("ref", of.Task.String()+":raw").Number("page", int64(page)).Data()
	if err != nil {
		return "", err
	}
	return v5.Format(v5.Message{
		Number: page%v5.MaxNumber + 1, From: from, To: orchestrator(), Type: v5.Query, Task: of.Task, Context: of.Context, Data: data,
	})
}
