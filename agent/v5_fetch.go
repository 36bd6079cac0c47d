package agent

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"comet/internal/wire/v5"
)

// The bounds of what is fetched: so many pages, and so many of them at a time.
const (
	maxPages   = 100_000
	pagesAhead = 64
)

// fetch reads a text of a task, page by page.
func (p *pipes) fetch(ctx context.Context, request uuid.UUID, at place, field string) (string, error) {
	first, err := p.ask(ctx, request, at, field, 1)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	of, err := readPage(ctx, first, 1, &out)
	if err != nil || of > maxPages {
		return "", errors.Join(err, tooManyPages(of))
	}
	for begin := 2; begin <= of; begin += pagesAhead {
		var replies []<-chan v5.Message
		for n := begin; n <= of && n < begin+pagesAhead; n++ {
			reply, err := p.ask(ctx, request, at, field, n)
			if err != nil {
				return "", err
			}
			replies = append(replies, reply)
		}
		for i, reply := range replies {
			if _, err := readPage(ctx, reply, begin+i, &out); err != nil {
				return "", err
			}
		}
	}
	return out.String(), nil
}

func tooManyPages(of int) error {
	if of <= maxPages {
		return nil
	}
	return fmt.Errorf("the text has %d pages; at most %d are read", of, maxPages)
}

// ask sends a Q for one page.
func (p *pipes) ask(ctx context.Context, request uuid.UUID, at place, field string, page int) (<-chan v5.Message, error) {
	data, err := new(v5.Writer).Add("ref", at.task.String()+":"+field).Number("page", int64(page)).Data()
	if err != nil {
		return nil, err
	}
	l := &line{request: request, place: at, reply: make(chan v5.Message, 1)}
	text, err := p.about(v5.Message{Type: v5.Query, Task: at.task, Context: at.context, Depth: at.depth, Data: data})
	if err != nil {
		return nil, err
	}
	return l.reply, p.outbox.put(ctx, l.parcel(text))
}

// readPage waits for a page and writes its text.
func readPage(ctx context.Context, reply <-chan v5.Message, page int, out *strings.Builder) (of int, err error) {
	select {
	case m := <-reply:
		return pageIn(m, page, out)
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// pageIn writes the text of the page that an answer to Q is, and returns how many there are.
func pageIn(m v5.Message, page int, out *strings.Builder) (of int, err error) {
	if m.Type != v5.Success {
		return 0, refusedLine(m)
	}
	number := func(key string) int {
		text, _ := m.Data.Get(key)
		n, _ := strconv.Atoi(text)
		return n
	}
	if of = number("of"); of < 1 || number("page") != page {
		return 0, fmt.Errorf("the server's answer is not page %d: %s", page, m.Data)
	}
	text, _ := m.Data.Get("text")
	if enc, _ := m.Data.Get("enc"); enc == "base64" {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return 0, fmt.Errorf("page %d cannot be read: %w", page, err)
		}
		text = string(raw)
	}
	out.WriteString(text)
	return of, nil
}
