// Package v5 gives the messages of PROTOCOL_V5 their meaning: it turns received messages into
// calls of the orchestrator, and results and inbox messages of the core into V5 messages. The
// O1 that replies is this service. Package internal/wire/v5 is the codec, and
// internal/transport moves the bytes.
//
// A message names agents, sessions and tasks by short names (W3, S1, T1), which the orchestrator
// assigns. A subtask that was handed off has the TID of its parent, one DEPTH deeper, so that
// CTX, TID, DEPTH and the worker identify it together.
//
// Receive is the way in: it parses, authenticates, finds the task, handles the message by its
// type and logs it. Render is the way out.
package v5

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"comet/internal/auth"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/protocol/v5/messagelog"
	"comet/internal/protocol/v5/shortid"
	wire "comet/internal/wire/v5"
	"comet/models"
	"comet/store"
)

const (
	// Name is the protocol of a worker that speaks V5.
	Name = "v5"
	// Class is the class of tasks that are requested in V5 (orchestrator.Options.Classes).
	Class = Name
	// Subprotocol is the WebSocket subprotocol.
	Subprotocol = "v5"
	// Version is the default version that a join can state (PROTOCOL_V5 §14).
	Version = "V5"
	// VersionV4 is the older one.
	VersionV4 = "V4"
)

// contentType is the media type of a reply over HTTP.
const contentType = "text/plain; charset=utf-8"

// self is the address of this orchestrator, O1.
var self = wire.Address{Role: wire.Orchestrator, Number: 1} //nolint:gochecknoglobals // a constant

// Policy returns how tasks of Class are timed, retried and assigned: two retries after a timeout
// and one after E32, another worker after E30 and E31, two questions, 60 s for an answer and
// then its first option, depth 4 (PROTOCOL_V5 §5.4, §7, §8.2).
func Policy() orchestrator.Policy {
	return orchestrator.Policy{
		Timeout: 30 * time.Second, QueueTimeout: 10 * time.Minute, ReplyTimeout: time.Minute,
		Retries: 2, Backoff: []time.Duration{time.Second, 2 * time.Second},
		RetryOn: []orchestrator.Failure{
			orchestrator.FailureTimeout, orchestrator.FailureLost, orchestrator.FailureUnavailable, orchestrator.FailureSaturated, orchestrator.FailureResource,
		},
		RetryLimits:     map[orchestrator.Failure]int{orchestrator.FailureResource: 1},
		ReassignOn:      []orchestrator.Failure{orchestrator.FailureLost, orchestrator.FailureUnavailable, orchestrator.FailureSaturated},
		BreakerFailures: 5, BreakerPause: time.Minute,
		MaxDepth: 4, MaxQuestions: 2, UseFirstOption: true,
	}
}

// Options configures New; nil is the zero value.
type Options struct {
	// Clock returns the time, default time.Now.
	Clock func() time.Time
	// Keys are the agents' signing keys; without them no agent has a key.
	Keys *auth.Keys
	// MessageLog stores the messages of conversations; without it no message can be referred to.
	MessageLog *messagelog.Log
	// Retention is how long short ids and logged messages are stored, default 30 days: as long as
	// ended tasks.
	Retention time.Duration
	// Logger receives every message and our own failures; default discards.
	Logger *slog.Logger
}

// Protocol implements protocol.Protocol. It is safe for concurrent use.
type Protocol struct {
	orchestrator *orchestrator.Orchestrator
	store        *store.Store
	clock        func() time.Time
	log          *slog.Logger
	retention    time.Duration
	keys         *auth.Keys      // nil for none
	messages     *messagelog.Log // nil for none
	numbers      *messageNumbers
	shortIDs     *shortid.Cache
	// pageCache holds long texts that are being read, so that the text is not read from the database
	// and split again for each of its pages.
	pageCache *lru.Cache[string, pagedText]
}

var _ protocol.Protocol = (*Protocol)(nil)

// New returns the protocol over the orchestrator, with its tables in the store.
func New(work *orchestrator.Orchestrator, s *store.Store, opts *Options) *Protocol {
	o := cmp.Or(opts, &Options{})
	p := &Protocol{
		orchestrator: work, store: s, shortIDs: shortid.NewCache(s), keys: o.Keys, messages: o.MessageLog, clock: o.Clock,
		retention: cmp.Or(max(o.Retention, 0), defaultRetention), log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
	}
	if p.clock == nil {
		p.clock = time.Now
	}
	p.numbers = newMessageNumbers(p.clock())
	p.pageCache, _ = lru.New[string, pagedText](maxCachedTexts) // fails only for a size that is not positive
	return p
}

const defaultRetention = 30 * 24 * time.Hour

// Purge deletes expired rows: contexts of deleted sessions and tasks with their short ids, and
// messages.
func (p *Protocol) Purge(ctx context.Context) error {
	before := p.store.Now().Add(-p.retention)
	return p.store.InBatches(ctx,
		func(tx *store.Tx, limit int) (int64, error) { return shortid.Purge(tx, before, limit) },
		func(tx *store.Tx, limit int) (int64, error) { return messagelog.Purge(tx, before, limit) },
	)
}

// Info implements protocol.Protocol: a connection carries nothing but messages.
func (p *Protocol) Info() protocol.Info {
	return protocol.Info{
		Name: Name, Subprotocols: []string{Subprotocol}, ContentTypes: []string{"text/plain"}, Path: "/api/v5/", KeyAlgorithm: auth.HMACSHA256, MaxBytes: wire.MaxLine,
		Introduce: p.introduce, Verify: p.verify, Prompt: p.Prompt,
	}
}

// Order implements protocol.Protocol. The key is TID and CTX, the fourth and the ninth segment. A
// request that opens a session is independent. Other requests of a session have the same key, unless
// they name a task or contain a reference; these are processed alone, as are messages about no task
// and messages of V4, which have no CTX.
func (p *Protocol) Order(raw []byte) protocol.Order {
	segments := bytes.SplitN(raw, []byte{'|'}, wire.Segments)
	if len(segments) < wire.Segments {
		return protocol.Order{}
	}
	kind, task, session, data := string(segments[2]), string(segments[3]), string(segments[8]), segments[10]
	aboutTask, inSession := len(task) > 1 && task != "T0", len(session) > 1 && session != wire.SystemContext
	switch {
	case kind == "R" && task == "-" && !inSession:
		return protocol.Order{Independent: true}
	case kind == "R" && task == "-" && !bytes.ContainsRune(data, '#'):
		return protocol.Order{Key: session, Atomic: true, Blind: true}
	case !aboutTask || !inSession:
		return protocol.Order{}
	}
	switch kind {
	case "A":
		return protocol.Order{Key: task + session, Atomic: true, Blind: true}
	case "U", "S", "E", "C": // they read nothing that A changes
		return protocol.Order{Key: task + session, Blind: true}
	case "X":
		return protocol.Order{Key: task + session}
	case "Q":
		if ref := []byte("ref="); !bytes.Contains(data, ref) || bytes.Contains(data, append(ref, task+":"...)) {
			return protocol.Order{Key: task + session}
		}
	}
	return protocol.Order{}
}

// Accepts implements protocol.Protocol: every agent can have a number.
func (p *Protocol) Accepts(models.Agent) error { return nil }

// Token implements protocol.Protocol with the pair token= of a join.
func (p *Protocol) Token(raw []byte) (token string, rest []byte) {
	m, err := wire.Parse(string(raw))
	if err != nil || m.Type != wire.Join {
		return "", raw
	}
	data, token, found := m.Data.Cut(keyToken)
	if !found {
		return "", raw
	}
	m.Data = data
	text, err := m.Format()
	if err != nil {
		return "", raw
	}
	return token, []byte(text)
}

// reply replies to a message from O1. sendBack is whether the reply is sent over a connection
// that stays open; over HTTP it always is.
func (p *Protocol) reply(to wire.Message, t wire.Type, s wire.State, data *wire.Writer, sendBack bool) (protocol.Reply, error) {
	text, err := data.Data()
	if err != nil {
		return protocol.Reply{}, err
	}
	m := to.Reply(self, p.numbers.next(to.Context), t, text)
	m.State = s
	line, err := m.Format()
	if err != nil {
		return protocol.Reply{}, err
	}
	return protocol.Reply{Status: http.StatusOK, Body: []byte(line), ContentType: contentType, SendBack: sendBack}, nil
}

// acknowledge replies with A to a message whose effect is committed. Warnings are always sent.
func (p *Protocol) acknowledge(to wire.Message, word string, sendBack bool) (protocol.Reply, error) {
	return p.reply(to, wire.Ack, to.State, ackData(word, to), sendBack || to.Warnings != 0)
}

// ackData begins the DATA of an A: a word, and the warnings about the message.
func ackData(word string, to wire.Message) *wire.Writer {
	w := new(wire.Writer).Flag(word)
	if to.Warnings != 0 {
		w.List("warn", strings.Split(to.Warnings.String(), ",")...)
	}
	return w
}
