package a2a

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/orchestrator"
	"comet/internal/workflow"
	"comet/models"
	rows "comet/store/a2a"
)

// place is a position in the stream of a task. Clients send it as Last-Event-ID.
type place struct {
	// position is that of the last event.
	position int64
	// attempt is the attempt whose result is sent, and sent the number of its bytes that were sent.
	attempt int
	sent    int64
	// version is that of the snapshot until a later event was sent: events after position may be of earlier versions.
	version int64
}

// String returns the position, and if the others are not 0 "position.attempt.sent" or "position.attempt.sent.version".
func (p place) String() string {
	out := strconv.FormatInt(p.position, 10)
	if p.sent > 0 || p.version > 0 {
		out += "." + strconv.Itoa(p.attempt) + "." + strconv.FormatInt(p.sent, 10)
	}
	if p.version > 0 {
		out += "." + strconv.FormatInt(p.version, 10)
	}
	return out
}

// readPlace reads what String returns.
func readPlace(id string) (p place, ok bool) {
	parts := strings.Split(id, ".")
	if len(parts) == 2 || len(parts) > 4 {
		return p, false
	}
	numbers := make([]int64, 4)
	for i, text := range parts {
		n, err := strconv.ParseInt(text, 10, 63)
		if err != nil || n < 0 {
			return p, false
		}
		numbers[i] = n
	}
	return place{numbers[0], int(numbers[1]), numbers[2], numbers[3]}, true
}

// stream is the stream of a task's events.
type stream struct {
	*service
	f   found
	sub *events.Subscription
	at  place
	// snapshot is the first event of the stream, nil for one that is resumed.
	snapshot *a2a.Task
	// state is the state that the client knows.
	state a2a.TaskState
	// emit sends an event to the client.
	emit func(id string, e a2a.Event) error
}

// open opens the stream of a task, which begins with the task as it is now or, with the id of an event, after that event.
func (s *service) open(ctx context.Context, by sender, id, lastEventID string, show shown) (*stream, error) {
	sub, err := s.Feed.SubscribeNew(ctx) // before the task is read: what the task contains already is skipped later
	if err != nil {
		return nil, err
	}
	out := &stream{service: s, sub: sub, at: place{position: sub.Position()}}
	if out.f, err = s.find(ctx, by.Principal, id); err != nil {
		return nil, err
	}
	from, ok := readPlace(lastEventID)
	kinds, first := taskEvents(), events.TaskCreated
	if out.f.flow != nil {
		kinds, first = workflowEvents(), workflow.EventStarted
	}
	if ok = ok && (out.f.core != nil || out.f.flow != nil) && from.position <= out.at.position; ok {
		if ok, err = s.canResume(ctx, id, first, &from); err != nil {
			return nil, err
		}
	}
	if ok {
		out.at, out.sub = from, s.Feed.Subscribe(from.position)
	} else if out.snapshot, err = s.view(ctx, out.f, show); err != nil {
		return nil, err
	} else {
		out.state = out.snapshot.Status.State
		switch {
		case out.f.core != nil:
			out.at.version = out.f.core.Version
		case out.f.flow != nil:
			out.at.version = out.f.flow.Version
		}
	}
	out.sub.Only(kinds...)
	return out, nil
}

// canResume reports whether no event after a place was purged. A place before the task is moved to its first event.
func (s *service) canResume(ctx context.Context, id string, first models.EventType, at *place) (bool, error) {
	if _, missed, err := s.Feed.Missed(ctx, at.position); missed || err != nil {
		return false, err
	}
	created, err := s.Store.Events(ctx).Newest(id, first)
	if errs.Is(err, errs.NotFound) {
		return true, nil
	}
	at.position = max(at.position, created.Position-1)
	return err == nil, err
}

// run sends the events of a task until it has ended or ctx ends. It calls idle, whose error ends the stream, in intervals.
func (st *stream) run(ctx context.Context, by sender, emit func(id string, e a2a.Event) error, idle func() error) error {
	st.emit = emit
	if st.snapshot != nil {
		if err := emit(st.at.String(), st.snapshot); err != nil || st.f.ended() {
			return err
		}
	}
	if st.f.flow != nil {
		return st.followWorkflow(ctx, idle)
	}
	if st.f.core == nil {
		if ended, err := st.followOutside(ctx, by, idle); ended || err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	happened, changed := make(chan []models.Event), make(chan models.Task)
	readers.Go(func() { st.followEvents(ctx, happened) })
	readers.Go(func() {
		defer close(changed)
		st.followTask(ctx, changed)
	})
	for {
		select {
		case batch := <-happened:
			for _, e := range batch {
				if ended, err := st.handle(ctx, e); ended || err != nil {
					return err
				}
			}
		case t, reading := <-changed:
			if !reading { // without it, nothing would notice that the token was revoked
				return errUnreadable
			}
			if !t.State.Ended() {
				if err := st.sendOutput(ctx, t, false); err != nil {
					return err
				}
			}
			if last := endEvents[t.State]; last != "" {
				if ended, err := st.endUnseen(ctx, found{row: st.f.row, core: &t}, last); ended || err != nil {
					return err
				}
			}
			if err := idle(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// errUnreadable ends a stream whose task cannot be read.
var errUnreadable = errors.New("the task cannot be read")

// followEvents reads the events of the task.
func (st *stream) followEvents(ctx context.Context, to chan<- []models.Event) {
	for {
		all, err := st.sub.Next(ctx, maxEvents)
		if err != nil {
			return
		}
		var own []models.Event
		for _, e := range all {
			if e.Key == st.f.id() {
				own = append(own, e)
			}
		}
		if own == nil {
			continue
		}
		select {
		case to <- own:
		case <-ctx.Done():
			return
		}
	}
}

// followTask reads the task whenever it has changed, and in intervals. It returns if the task cannot be read.
func (st *stream) followTask(ctx context.Context, to chan<- models.Task) {
	for t := *st.f.core; ; {
		select {
		case to <- t:
		case <-ctx.Done():
			return
		}
		var err error
		if t.State.Ended() {
			<-ctx.Done() // the last event is on its way
			return
		}
		if t, err = st.Orchestrator.WaitForChange(ctx, "", st.f.id(), t.Version, st.opts.Heartbeat); err != nil {
			return
		}
	}
}

// handle sends an event of the task, and reports whether the task has ended.
func (st *stream) handle(ctx context.Context, e models.Event) (ended bool, err error) {
	var d events.TaskData
	if err := json.Unmarshal(e.Data, &d); err != nil {
		return false, err
	}
	st.at.position = e.Position
	out := st.f.update(e, d)
	if d.SubtaskID != "" { // an event of a subtask leaves the version as it is
		if st.snapshot != nil && asksSame(st.snapshot.Status, out.Status) {
			return false, nil
		}
	} else if d.Version <= st.at.version { // the snapshot contains it
		return false, nil
	} else {
		st.at.version = 0
	}
	switch {
	case d.State.Ended():
		t, err := st.Orchestrator.Task(ctx, st.f.id())
		if err != nil {
			return false, err
		}
		if err := st.sendOutput(ctx, t, true); err != nil {
			return false, err
		}
		out.Metadata = usage(t)
	case d.Question != "", e.Type == events.TaskProgress:
	case out.Status.State == st.state:
		return false, nil
	}
	st.state = out.Status.State
	return d.State.Ended(), st.emit(st.at.String(), out)
}

// update returns the status that an event of a task reports.
func (f found) update(e models.Event, d events.TaskData) *a2a.TaskStatusUpdateEvent {
	out := &a2a.TaskStatusUpdateEvent{TaskID: f.info().TaskID, ContextID: f.contextID()}
	out.Status = a2a.TaskStatus{State: stateOf(d.State, d.WaitingFor, d.Attempt), Timestamp: stamp(e.At)}
	switch {
	case d.State.Ended() && d.Error != "":
		out.Status.Message = errorMessage(f.info(), d.Version, d.Failure, d.Error)
	case d.Question != "": // of the task or a subtask
		out.Status.State = a2a.TaskStateInputRequired
		out.Status.Message = questionMessage(f.info(), cmp.Or(d.SubtaskID, f.id()), e.At, orchestrator.Question{Text: d.Question, Options: d.Options})
	case e.Type == events.TaskProgress:
		out.Metadata = map[string]any{"progress": d.Progress}
		if d.StepName != "" {
			out.Status.Message = agentText(f.id()+"-step-"+strconv.FormatInt(d.Version, 10), d.StepName, f.info())
		}
	}
	return out
}

// asksSame reports whether two statuses have the same question.
func asksSame(a, b a2a.TaskStatus) bool {
	return a.Message != nil && b.Message != nil && a.Message.ID == b.Message.ID
}

// endUnseen ends a stream whose last event, which is of the given type, the client knows already, or was purged.
func (st *stream) endUnseen(ctx context.Context, f found, last models.EventType) (ended bool, err error) {
	newest, err := st.Store.Events(ctx).Newest(f.id(), last)
	switch {
	case errs.Is(err, errs.NotFound):
		last, err := st.view(ctx, f, shown{history: new(0), artifacts: true})
		if err != nil {
			return false, err
		}
		return true, st.emit(st.at.String(), last)
	case err != nil:
		return false, err
	}
	return newest.Position != 0 && newest.Position <= st.at.position, nil // otherwise it will be read
}

// followOutside waits until the core has a task that asks for a capability. ended is set if it has ended instead.
func (st *stream) followOutside(ctx context.Context, by sender, idle func() error) (ended bool, err error) {
	changes := st.Feed.Subscribe(st.at.position).Only(events.TaskCreated, events.TaskFailed, events.TaskCancelled)
	for {
		if _, err := st.nextEvents(ctx, changes, st.f.id()); err != nil {
			return true, err
		}
		if err := idle(); err != nil {
			return true, err
		}
		if st.f, err = st.find(ctx, by.Principal, st.f.id()); err != nil || st.f.core != nil {
			return err != nil, err
		}
		if st.f.row.State != rows.Asking {
			status, err := st.status(ctx, st.f)
			if err == nil {
				err = st.emit(st.at.String(), &a2a.TaskStatusUpdateEvent{TaskID: st.f.info().TaskID, ContextID: st.f.contextID(), Status: status})
			}
			return true, err
		}
	}
}
