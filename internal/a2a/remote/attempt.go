package remote

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/a2a/client"
	"comet/internal/a2a/wire"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/orchestrator"
	"comet/models"
	"comet/store"
	"comet/store/remotes"
)

// Limits of attempts.
const (
	// maxDuration is how long a remote agent may work on an attempt without another limit.
	maxDuration = 24 * time.Hour
	maxStepName = 200
	maxQuestion = 4000
	maxOptions  = 20
	maxReason   = 2000
	// factKind is the kind of their tokens in the ledger.
	factKind = "a2a"
)

var (
	// errEnded: the core has ended the attempt. errDone: the remote agent has ended it. errWaiting: it waits for a reply.
	errEnded   = errors.New("the attempt has ended")
	errDone    = errors.New("the remote task has ended")
	errWaiting = errors.New("the remote task waits for a reply")
	// errCancelled is the cause of the end of an attempt that was cancelled.
	errCancelled = errors.New("cancelled")
)

// isTransient reports whether an error is one of the database, which may be over soon.
func isTransient(err error) bool {
	return err != nil && !client.Is(err) && !errors.Is(err, errEnded) && !errors.Is(err, errDone) && !errors.Is(err, errWaiting)
}

// prepare reads the task, and what the remote agent has of it, and ends earlier attempts that it may still execute.
func (a *attempt) prepare(ctx context.Context) (err error) {
	a.contactAt, a.streams = a.clock(), a.card.Capabilities.Streaming
	task, err := a.work.TaskWithInput(ctx, a.key.task)
	t := task.Task
	if errs.Is(err, errs.NotFound) || err == nil && (t.State.Ended() || t.AgentID != a.AgentID || t.Attempt != a.key.number) {
		return errEnded
	}
	if err != nil {
		return err
	}
	reads := a.store.Reads(ctx)
	if a.row, err = remotes.TaskOf(reads, a.key.task, a.key.number); err != nil {
		return err
	}
	a.assignedAt, a.waiting, a.out.streaming = t.AssignedAt, t.WaitingFor == models.WaitForReply, t.OutputBytes > 0
	hops, err := hopsOf(ctx, a.store, t)
	if a.meta = map[string]any{"comet_hops": hops + 1}; task.Input.Trace != "" {
		a.meta["traceparent"] = task.Input.Trace
	}
	if err != nil || a.row.RemoteID != "" {
		return err
	}
	a.row = remotes.Task{TaskID: t.ID, Attempt: a.key.number, AgentID: a.AgentID, SessionID: t.SessionID}
	earlier, err := remotes.EarlierTasks(reads, a.AgentID, t.ID, a.key.number)
	for _, e := range earlier {
		_, _ = a.client.Cancel(ctx, e.RemoteID) // it may have ended
	}
	if err == nil {
		a.row.ContextID, err = remotes.ContextOf(reads, a.AgentID, t.SessionID)
	}
	if err == nil && hops >= maxHops {
		err = &client.Error{Kind: kindLoop, Text: fmt.Sprintf("the work has passed through comet over A2A %d times, which is the limit: the card of a remote agent leads back to comet", maxHops)}
	}
	a.first = a.message(t.ID+"."+strconv.Itoa(a.key.number), parts(task.Input.Parameters))
	// The capability is for agents that route by it, such as comet; an agent that a tenant names gets it only if its card lists it.
	if names := task.Input.Capabilities; len(names) == 1 && (a.endpoint.Tenant == "" || a.card.HasSkill(models.CapabilityKey(names[0]))) {
		a.first.Metadata["capability"] = models.CapabilityKey(names[0])
	}
	if t.Budget != nil {
		a.first.Metadata["budget"] = max(*t.Budget-t.Tokens, 1)
	}
	return err
}

// message returns a message about the attempt.
func (a *attempt) message(id string, parts a2a.ContentParts) *a2a.Message {
	return &a2a.Message{ID: id, ContextID: a.row.ContextID, TaskID: a2a.TaskID(a.row.RemoteID), Role: a2a.MessageRoleUser, Parts: parts, Metadata: maps.Clone(a.meta)}
}

// follow sends the message of the attempt unless the remote agent has it, and follows its task until it ends.
func (a *attempt) follow(ctx context.Context) error {
	for wait := a.opts.PollMin; ; {
		a.changed = false
		begun := time.Now()
		err := a.step(ctx)
		if a.changed {
			wait = a.opts.PollMin
		}
		pause := max(wait-time.Since(begun), a.opts.PollMin) // a stream has waited itself
		switch failed, isClient := errors.AsType[*client.Error](err); {
		case err == nil, errors.Is(err, errWaiting):
		case errors.Is(err, errDone), errors.Is(err, errEnded), ctx.Err() != nil, isClient && failed.Kind != client.Unreachable:
			return err
		case !isClient:
			a.log.Warn("an attempt of a remote agent cannot be updated; retrying", "task", a.key.task, "error", err)
		case a.clock().Sub(a.contactAt) >= a.opts.Patience:
			a.suspect.Set()
			return err
		default:
			pause = max(pause, failed.RetryAfter)
		}
		if a.clock().Sub(a.assignedAt) > maxDuration {
			return &client.Error{Kind: kindTimeout, Text: "the remote agent has worked for more than 24 hours"}
		}
		replies := a.replies
		if wait = min(2*wait, a.opts.PollMax); a.pending != nil {
			replies = nil // it is sent first
		}
		select {
		case r := <-replies:
			a.pending, wait = &r, a.opts.PollMin
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// step sends the pending message if there is one, and otherwise follows the stream of the task or reads the task.
func (a *attempt) step(ctx context.Context) error {
	switch {
	case a.pending != nil:
		return a.send(ctx, a.message(a.pending.id, a2a.ContentParts{a2a.NewTextPart(a.pending.text)}))
	case a.row.RemoteID == "":
		return a.send(ctx, a.first)
	case a.streams && !a.waiting:
		err := a.client.Subscribe(ctx, a.row.RemoteID, a.lastID, func(id string, e a2a.Event) error { return a.apply(ctx, id, e) })
		if !client.Is(err, client.Unreachable, client.Refused) {
			return err
		}
		a.streams, a.interrupted = client.Is(err, client.Unreachable), true
	}
	e, err := a.client.Get(ctx, a.row.RemoteID)
	if err != nil {
		return err
	}
	return a.apply(ctx, "", e)
}

// send sends a message. A message whose effect is unknown is sent again with the same id. If the attempt is cancelled, send waits for
// the first response, which has the id of the task to cancel.
func (a *attempt) send(ctx context.Context, m *a2a.Message) (err error) {
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	unlink := context.AfterFunc(ctx, func() {
		if !errors.Is(context.Cause(ctx), errCancelled) {
			stop()
		}
	})
	each := func(id string, e a2a.Event) error {
		if unlink() {
			context.AfterFunc(ctx, stop)
		}
		if err := a.sent(ctx); err != nil {
			return err
		}
		return a.apply(ctx, id, e)
	}
	if a.streams {
		err = a.client.Stream(inner, m, each)
		if failed, ok := errors.AsType[*client.Error](err); ok && failed.Kind == client.Refused && (failed.Reason == "UNSUPPORTED_OPERATION" || failed.Code == -32004 || failed.Code == -32601) && m.TaskID == "" {
			a.streams = false
		}
	}
	if !a.streams {
		var e a2a.Event
		if e, err = a.client.Send(inner, m); err == nil {
			err = each("", e)
		}
	}
	if client.Is(err, client.Refused) && a.pending != nil { // the task may have ended
		if e, got := a.client.Get(ctx, a.row.RemoteID); got == nil && wire.StatusOf(e).State.Terminal() {
			return a.apply(ctx, "", e)
		}
	}
	return err
}

// sent removes the reply that was sent from the inbox.
func (a *attempt) sent(ctx context.Context) error {
	if a.pending == nil {
		return nil
	}
	id := a.pending.id
	a.pending, a.waiting = nil, false
	_, err := a.work.Acknowledge(context.WithoutCancel(ctx), a.AgentID, []string{id})
	return err
}

// apply applies an event of the remote agent, and reports what has changed.
func (a *attempt) apply(ctx context.Context, id string, e a2a.Event) error {
	a.contactAt = a.clock()
	if id != "" {
		a.lastID = id
	}
	about, status := e.TaskInfo(), wire.StatusOf(e)
	_, isMessage := e.(*a2a.Message)
	if id := string(about.TaskID); !isMessage && id != a.row.RemoteID && id != "" {
		if a.row.RemoteID != "" {
			return &client.Error{Kind: client.Invalid, Text: "the remote agent sends events of the task " + input.Quote(id) + " instead of " + input.Quote(a.row.RemoteID)}
		}
		a.row.RemoteID, a.row.ContextID = id, about.ContextID
		if err := a.save(ctx); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	a.tokens = max(a.tokens, usageOf(e))
	if err := a.out.add(e); err != nil {
		return err
	}
	_, isTask := e.(*a2a.Task)
	a.changed = a.changed || !isTask || status.State != a.status.State
	if status.State != "" {
		a.status = status
	}
	switch {
	case a.status.State.Terminal(), a.status.State == a2a.TaskStateAuthRequired:
		return errDone
	case status.State == a2a.TaskStateInputRequired:
		if err := a.ask(ctx); err != nil {
			return err
		}
	}
	return a.report(ctx, e)
}

// save stores what the remote agent has of the attempt, even if the attempt was cancelled.
func (a *attempt) save(ctx context.Context) error {
	return a.store.Write(context.WithoutCancel(ctx), func(tx *store.Tx) error { return remotes.SaveTask(tx, a.row) })
}

// report reports the progress in an event. An event without progress is reported as a sign of life in intervals.
func (a *attempt) report(ctx context.Context, e a2a.Event) error {
	var p orchestrator.Progress
	if u, ok := e.(*a2a.TaskStatusUpdateEvent); ok && a.status.State == a2a.TaskStateWorking {
		if percent, ok := u.Metadata["progress"].(float64); ok {
			p.Percent = new(int(min(max(percent, 0), 99)))
		}
		p.StepName = input.ClipBytes(textOf(u.Status.Message), maxStepName)
	}
	piece := a.out.piece()
	if piece != nil {
		p.Chunk = &orchestrator.Chunk{Start: a.out.toldBytes, Data: piece}
	}
	if p.Percent == nil && p.StepName == "" && piece == nil && !a.reportedAt.IsZero() && a.clock().Sub(a.reportedAt) < a.opts.Alive || a.waiting {
		return nil
	}
	t, err := a.work.Progress(ctx, a.AgentID, a.key.task, p)
	if err == nil && t.Attempt != a.key.number || errs.Is(err, errs.TaskState) || errs.Is(err, errs.NotFound) {
		return errEnded
	}
	if errs.Is(err, errs.LimitReached) {
		return &client.Error{Kind: client.TooLarge, Text: errs.From(err).Detail}
	}
	if err == nil {
		if a.reportedAt = a.clock(); piece != nil {
			a.out.reported(piece)
		}
	}
	return err
}

// ask passes a question of the remote agent on, once.
func (a *attempt) ask(ctx context.Context) error {
	m := cmp.Or(a.status.Message, &a2a.Message{})
	text := cmp.Or(strings.TrimSpace(input.ClipBytes(textOf(m), maxQuestion)), "the remote agent requires input")
	sum := sha256.Sum256([]byte(cmp.Or(m.ID, text)))
	digest := hex.EncodeToString(sum[:16])
	switch {
	case a.row.Asked == digest && a.waiting:
		return errWaiting
	case a.row.Asked == digest: // it has not read the reply yet
		return nil
	case !a.waiting || a.row.Asked != "":
		t, err := a.work.Clarify(ctx, a.AgentID, a.key.task, orchestrator.Question{Text: text, Options: optionsOf(m)})
		if err == nil && (t.WaitingFor != models.WaitForReply || t.Attempt != a.key.number) || errs.Is(err, errs.TaskState) || errs.Is(err, errs.NotFound) {
			return errEnded
		}
		if err != nil {
			return err
		}
	}
	a.row.Asked, a.waiting = digest, true
	if err := a.save(ctx); err != nil {
		return err
	}
	return errWaiting
}
