package v5

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
	"comet/models"
)

func asRefusal(err error, r *refusal) bool { return errors.As(err, r) }

// questionRoom is how many characters of DATA are kept for a question beside its options.
const questionRoom = 70

// maxOptions is how many answers a user is offered (PROTOCOL_V5 §7.2).
const maxOptions = 4

// follow says that a request is taken on and, where its asker waits, what came of it: its
// end, or what the user is asked.
func (d *Protocol) follow(ctx context.Context, s speaker, m wire.Message, t models.Task, wait time.Duration) (protocol.Reply, error) {
	w := flag("accepted", m)
	if names := d.workersOf(ctx, t); len(names) == 1 {
		w.Add("worker", names[0])
	} else if len(names) > 1 {
		w.List("workers", names...)
	}
	a, err := d.say(m, wire.Ack, state(t), w, true)
	if err != nil {
		return a, err
	}
	a.Status, a.Location = http.StatusAccepted, "/api/v1/tasks/"+t.ID
	s.said.in(m) // all who come here have made the task, or have shown that it is theirs
	s.said.taken(m)
	d.answers(ctx, s, a)
	if last, err := d.cameOf(ctx, s, t, wait); err != nil { // it is taken on all the same
		d.log.Warn("an asker could not be told what came of it", "task", t.ID, "error", err)
	} else if last.Body != nil {
		a.Body = bytes.Join([][]byte{a.Body, last.Body}, []byte{'\n'})
		a.Status = last.Status
	}
	return a, nil
}

// workersOf are the names of those who have a task.
func (d *Protocol) workersOf(ctx context.Context, t models.Task) (names []string) {
	all := []models.Task{t}
	if t.AgentID == "" && t.State == models.TaskRunning { // several have a part of it
		all, _ = d.work.Parts(ctx, t.ID) // what is said of them is a courtesy
	}
	for _, one := range all {
		if one.AgentID == "" || one.State.Ended() {
			continue
		}
		if name, err := d.address(ctx, one.AgentID); err == nil {
			names = append(names, name.String())
		}
	}
	return names
}

// cameOf waits for what comes of a task, and returns the line that says so: none where it
// goes on.
func (d *Protocol) cameOf(ctx context.Context, s speaker, t models.Task, wait time.Duration) (protocol.Reply, error) {
	t, err := d.await(ctx, s, t, wait)
	if err == nil && !t.State.Ended() {
		var asking bool
		if wait > 0 {
			_, asking, err = d.work.TaskAwaitingReply(ctx, t)
		}
		if !asking {
			return protocol.Reply{}, err
		}
	}
	if err != nil {
		return protocol.Reply{}, err
	}
	return d.standing(ctx, s, t)
}

// await waits until a task has ended, or asks something.
func (d *Protocol) await(ctx context.Context, s speaker, t models.Task, wait time.Duration) (models.Task, error) {
	until := time.Now().Add(wait)
	for left := wait; left > 0 && !t.State.Ended(); left = time.Until(until) {
		_, asking, err := d.work.TaskAwaitingReply(ctx, t)
		if err != nil || asking || ctx.Err() != nil {
			return t, err
		}
		next, err := d.work.WaitForChangeOrQuestion(ctx, s.TokenID, t, left)
		if err != nil {
			return t, unlessBusy(err)
		}
		t = next
	}
	return t, nil
}

// unlessBusy is nil where only too many wait: then this one does not.
func unlessBusy(err error) error {
	if errs.Is(err, errs.Busy) {
		return nil
	}
	return err
}

// standing is the line that says where a task is: its end, what it asks, or how far it
// is.
func (d *Protocol) standing(ctx context.Context, s speaker, t models.Task) (protocol.Reply, error) {
	t, asking, err := d.work.TaskAwaitingReply(ctx, t)
	if err != nil {
		return protocol.Reply{}, err
	}
	m, err := d.head(ctx, t)
	if err != nil {
		return protocol.Reply{}, err
	}
	m.To = s.address
	status := http.StatusOK
	switch {
	case t.State.Ended():
		if err := d.end(ctx, &m, t); err != nil {
			return protocol.Reply{}, err
		}
		if m.Err != "" {
			status = endStatus(m.Err)
		}
		if s.owns(t) {
			d.close(ctx, t)
		}
	case asking:
		err = d.asked(ctx, &m, t)
	default:
		m.Type = wire.Update
		m.Data, err = progressed(t.Progress, t.StepName).Data()
	}
	if err != nil {
		return protocol.Reply{}, err
	}
	line, err := wire.Format(m)
	return protocol.Reply{Status: status, Body: []byte(line), ContentType: contentType, SendBack: true}, err
}

// progressed is the DATA that says how far a task is.
func progressed(percent int, step string) *wire.Writer {
	w := new(wire.Writer).Add("progress", strconv.Itoa(percent)+"%")
	if step != "" {
		w.Text("step", step)
	}
	return w
}

// close ends the session that was made for a request, once its asker has the end of it
// (PROTOCOL_V5 §6.2). Where others of its tasks go on, it stays.
func (d *Protocol) close(ctx context.Context, t models.Task) {
	if t.Class != Class || t.SessionID == "" {
		return
	}
	order, err := d.work.TaskWithInput(ctx, t.ID)
	if err == nil {
		if kept, bad := metaOf(order.Input); bad != nil || !kept.Closes {
			return
		}
		_, err = d.work.CloseSession(context.WithoutCancel(ctx), t.SessionID)
	}
	if err != nil && !errs.Is(err, errs.TaskState) && !isGone(err) {
		d.log.Warn("a session stays open", "session", t.SessionID, "error", err)
	}
}

// asked is what a user is asked (PROTOCOL_V5 §7.2).
func (d *Protocol) asked(ctx context.Context, m *wire.Message, t models.Task) (err error) {
	m.Type = wire.Disambiguate
	asked, err := d.work.OpenQuestion(ctx, t)
	if err != nil {
		return err
	}
	w := new(wire.Writer)
	offered := asked.Options[:min(len(asked.Options), maxOptions)]
	for i, o := range offered { // which leave room for the question
		w.Text("opt"+strconv.Itoa(i+1), shorten(o, (wire.MaxData-questionRoom)/len(offered)-len(`;opt1=""`)))
	}
	opts, err := w.Data()
	if err != nil {
		return err
	}
	// The question comes first and is shortened rather than the options.
	w = new(wire.Writer)
	room := wire.MaxData - len([]rune(string(opts))) - len(`question="";`)
	w.Text("question", shorten(cmp.Or(asked.Text, "?"), room))
	question, err := w.Data()
	if err == nil && len(offered) > 0 {
		question += ";" + opts
	}
	m.Data = question
	return err
}

// shorten cuts a text to a number of characters.
func shorten(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:max(most-1, 0)]) + "…"
	}
	return text
}

// answer takes a user's C: answer= as it is, or choice=opt2.
func (d *Protocol) answer(ctx context.Context, s speaker, m wire.Message, wait time.Duration) (protocol.Reply, error) {
	t, err := d.mine(ctx, s, m)
	if err != nil {
		return protocol.Reply{}, err
	}
	asking, waits, err := d.work.TaskAwaitingReply(ctx, t) // it may be a part of it
	if err != nil {
		return protocol.Reply{}, err
	}
	if !waits {
		return protocol.Reply{}, wrongState(errs.New(errs.TaskState, "nothing was asked").With("state", t.State), m)
	}
	text, ok := m.Data.Get("answer")
	if choice, chosen := m.Data.Get("choice"); !ok && chosen {
		asked, err := d.work.OpenQuestion(ctx, asking)
		if err != nil {
			return protocol.Reply{}, err
		}
		n, err := strconv.Atoi(strings.TrimPrefix(choice, "opt"))
		if err != nil || n < 1 || n > len(asked.Options) {
			return protocol.Reply{}, refuse(wire.E10, "", "choice must be opt1 to opt%d, not %s", len(asked.Options), choice)
		}
		text, ok = asked.Options[n-1], true
	}
	if !ok {
		return protocol.Reply{}, refuse(wire.E10, "", "DATA must have answer, or choice such as choice=opt2")
	}
	if _, err = d.work.Reply(ctx, asking.ID, text); err != nil {
		return protocol.Reply{}, unknownTask(err, s, m)
	}
	if t, err = d.work.Task(ctx, t.ID); err != nil {
		return protocol.Reply{}, err
	}
	return d.follow(ctx, s, m, t, wait)
}

// cancel takes a user's U with the state X (decisions: “Cancel is a U with state X”).
func (d *Protocol) cancel(ctx context.Context, s speaker, m wire.Message) (protocol.Reply, error) {
	t, err := d.mine(ctx, s, m)
	if err != nil {
		return protocol.Reply{}, err
	}
	why, ok := m.Data.Get("reason")
	if !ok {
		why = "cancelled by the asker"
	}
	if t, err = d.work.Cancel(ctx, t.ID, why, nil); err != nil {
		return protocol.Reply{}, unknownTask(err, s, m)
	}
	s.said.in(m)
	d.close(ctx, t)
	return d.say(m, wire.Ack, wire.Cancelled, new(wire.Writer).Flag("cancelled"), true)
}

// mine returns the task that a speaker names, which he has to have asked for.
func (d *Protocol) mine(ctx context.Context, s speaker, m wire.Message) (models.Task, error) {
	if s.of != nil {
		return *s.of, nil
	}
	t, err := d.named(ctx, m)
	if err == nil && !s.owns(t) {
		err = refuse(wire.E40, "", "there is no task %s in %s", m.Task, m.Context)
	}
	return t, err
}
