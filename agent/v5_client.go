package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"comet/internal/wire/v5"
)

// maxSaid is the longest answer to lines that is read, in bytes.
const maxSaid = 4 << 20

// LineReply is where work stands that was asked for in a line.
type LineReply struct {
	// Task is the id that the REST API has for it; Context and TID name it in lines.
	Task         uuid.UUID
	Context, TID string
	// Line is what O1 said last, and Type its type: A, D, S, E, or U for work that was
	// cancelled.
	Line, Type string
	// Ended is false as long as there is no result.
	Ended bool
	// Succeeded, ExitCode and Output are the result's. ExitCode is 0 where none was said.
	Succeeded bool
	ExitCode  int
	Output    string
	// Code is that of an E, such as E21, and Message what is said of it. Question is what
	// is asked where Type is D.
	Code, Message string
	Question      string

	request v5.Message
}

// SayLines says lines of PROTOCOL_V5, at most 1,000, and returns what they are answered
// with, whether that says yes or no. With SignWith those that are not signed are. An R is
// answered with another line where the work ends, or asks something, within a time of at
// most a minute. task is the work that was asked for last, uuid.Nil for none. An error that
// is a Refused is a server that answers with no lines.
func (c *Client) SayLines(ctx context.Context, wait time.Duration, lines ...string) (answers []string, task uuid.UUID, err error) {
	if c.signer != nil {
		lines = slices.Clone(lines)
		for i, text := range lines {
			m, err := v5.Parse(text)
			if err != nil || m.Auth != (v5.Auth{}) {
				continue // for the server to judge
			}
			if lines[i], err = c.signer.seal(text, m.Context); err != nil {
				return nil, task, err
			}
		}
	}
	answers, task, _, err = c.say(ctx, wait, lines)
	return answers, task, err
}

// sayOwn is say for lines of this package, which are numbered and signed as they go.
func (c *Client) sayOwn(ctx context.Context, wait time.Duration, lines []string) (answers []string, task uuid.UUID, later time.Duration, err error) {
	signed := make([]string, len(lines))
	for i, text := range lines {
		if signed[i], err = c.signer.sign(text); err != nil {
			return nil, task, 0, err
		}
	}
	if answers, task, later, err = c.say(ctx, wait, signed); c.signer == nil {
		return answers, task, later, err
	}
	for _, text := range answers {
		m, wrong := v5.Parse(text)
		if wrong == nil {
			wrong = c.signer.verify(text, m)
		}
		if wrong != nil {
			return nil, task, 0, fmt.Errorf("the server's answer cannot be believed: %w", wrong)
		}
	}
	return answers, task, later, err
}

// say is SayLines that also returns when the lines may be said again.
func (c *Client) say(ctx context.Context, wait time.Duration, lines []string) (answers []string, task uuid.UUID, later time.Duration, err error) {
	req, err := c.request(ctx, http.MethodPost, "/api/v5/messages", strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		return nil, task, 0, err
	}
	req.Header.Set("Content-Type", "text/plain")
	if seconds := int(min(wait, time.Minute).Seconds()); seconds > 0 {
		req.Header.Set("Prefer", "wait="+strconv.Itoa(seconds))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if inURL := (*url.Error)(nil); errors.As(err, &inURL) {
			err = inURL.Err // the address is known
		}
		return nil, task, 0, err
	}
	defer resp.Body.Close()
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/plain" {
		return nil, task, 0, newRefused(resp)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxSaid))
	if err != nil {
		return nil, task, 0, err
	}
	task, _ = uuid.Parse(path.Base(resp.Header.Get("Location"))) // none, mostly
	return strings.Split(strings.TrimRight(string(body), "\n"), "\n"), task, retryAfterOf(resp.Header), nil
}

// AskLine asks for work until the server has taken it, or refused it, through whatever
// keeps it from being asked. Once the line may have arrived it is not said again, because
// it would be other work. An error that IsUnsayable is of a request that no line can say.
func (c *Client) AskLine(ctx context.Context, r *LineRequest) (LineReply, error) {
	m, err := r.message()
	if err != nil {
		return LineReply{}, &unsayableError{err}
	}
	pause := lineBackoff()
	for {
		reply, later, err := c.ask(ctx, m, 0)
		again := errors.Is(err, syscall.ECONNREFUSED) || err == nil && later > 0 && reply.Type == "E"
		var refused *Refused
		if errors.As(err, &refused) && !refused.permanent() {
			again, later = true, refused.RetryAfter
		}
		if !again {
			return reply, err
		}
		if err := sleep(ctx, max(pause.NextBackOff(), later)); err != nil {
			return reply, err
		}
	}
}

// AwaitLine waits until work that was taken has ended, through whatever becomes of the
// network and of the server, and fetches its result. asked is called with every question
// that is asked back; it may be nil.
func (c *Client) AwaitLine(ctx context.Context, reply LineReply, asked func(LineReply)) (LineReply, error) {
	m := reply.request
	m.Context = reply.Context
	m.Task, _ = v5.ParseTask(reply.TID)
	pause := lineBackoff()
	question := ""
	for {
		next, later, err := c.ask(ctx, m, 30*time.Second)
		var refused *Refused
		switch {
		case ctx.Err() != nil:
			return reply, context.Cause(ctx)
		case errors.As(err, &refused) && refused.permanent():
			return reply, err
		case err != nil || later > 0 && next.Type == "E": // not the end: it cannot say
		case next.Ended:
			next.Task = reply.Task
			return next, c.result(ctx, &next)
		default:
			pause.Reset()
			if next.Type == "D" && next.Question != question && asked != nil {
				question = next.Question
				asked(next)
			}
			if next.Type != "D" {
				continue
			}
			later = time.Second // until somebody answers
		}
		if err := sleep(ctx, max(pause.NextBackOff(), later)); err != nil {
			return reply, err
		}
	}
}

// CancelLine takes work back. A task that has ended stays as it is.
func (c *Client) CancelLine(ctx context.Context, reply LineReply) error {
	m := v5.Message{Number: 2, From: reply.request.From, To: orchestrator(), Type: v5.Update, State: v5.Cancelled, Context: reply.Context, Data: "-"}
	m.Task, _ = v5.ParseTask(reply.TID)
	text, err := v5.Format(m)
	if err != nil {
		return err
	}
	answers, _, _, err := c.sayOwn(ctx, 0, []string{text})
	if err != nil {
		return err
	}
	said, err := v5.Parse(answers[0])
	if err == nil && said.Type == v5.Failure && said.Err != v5.E15 {
		err = refusedLine(said)
	}
	return err
}

// ask says an R and reads what it is answered with.
func (c *Client) ask(ctx context.Context, m v5.Message, wait time.Duration) (reply LineReply, later time.Duration, err error) {
	text, err := v5.Format(m)
	if err != nil {
		return reply, 0, err
	}
	answers, task, later, err := c.sayOwn(ctx, wait, []string{text})
	if err != nil {
		return reply, 0, err
	}
	last := answers[len(answers)-1]
	said, err := v5.Parse(last)
	if err != nil {
		return reply, 0, fmt.Errorf("the server's answer cannot be understood: %w", err)
	}
	reply = lineReplyOf(said, last)
	reply.Task, reply.request = task, m
	return reply, later, nil
}

// lineReplyOf reads what O1 says of work.
func lineReplyOf(m v5.Message, text string) LineReply {
	r := LineReply{Context: m.Context, TID: m.Task.String(), Line: text, Type: m.Type.String(), Code: string(m.Err)}
	switch {
	case m.Type == v5.Success:
		r.Ended, r.Succeeded, r.Output = true, true, string(m.Data)
		if r.Output == "-" {
			r.Output = ""
		}
	case m.Type == v5.Failure:
		r.Ended, r.Message = true, wordsOf(m)
		text, _ := m.Data.Get("exit_code")
		r.ExitCode, _ = strconv.Atoi(text)
	case m.Type == v5.Update && m.State == v5.Cancelled:
		r.Ended = true
		r.Message, _ = m.Data.Get("reason")
	case m.Type == v5.Disambiguate:
		r.Question = string(m.Data)
	}
	return r
}

func lineBackoff() *backoff.ExponentialBackOff {
	pause := &backoff.ExponentialBackOff{InitialInterval: 250 * time.Millisecond, MaxInterval: 15 * time.Second, Multiplier: 2, RandomizationFactor: 0.3}
	pause.Reset()
	return pause
}
