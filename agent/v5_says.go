package agent

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"comet/internal/wire/envelope"
	"comet/internal/wire/v5"
)

// parcels implements speech. What is about a task that is not known here any more is not
// said: the server finds out by its silence.
func (p *pipes) parcels(e envelope.Envelope) ([]parcel, error) {
	t, ok := p.talks.Get(e.RequestID)
	if !ok {
		return nil, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &saying{pipes: p, talk: t, request: e.RequestID}
	switch body := e.Payload.(type) {
	case envelope.WorkStatus:
		s.status(body)
	case envelope.WorkResult:
		s.result(body)
	case envelope.Failure:
		s.failure(body)
	}
	return s.all, s.err
}

// saying puts a message into lines. The first thing that cannot be said is kept.
type saying struct {
	*pipes
	*talk

	request uuid.UUID
	all     []parcel
	err     error
}

// add adds a line. budget is what is left.
func (s *saying) add(m v5.Message, w *v5.Writer, log bool) {
	if s.err != nil {
		return
	}
	if w != nil {
		m.Data, s.err = w.Data()
	}
	m.Task, m.Context, m.Depth, m.Priority = s.head.Task, s.head.Context, s.head.Depth, s.head.Priority
	if m.Budget == (v5.Budget{}) {
		m.Budget = s.head.Budget
	}
	var text []byte
	if s.err == nil {
		text, s.err = s.about(m)
	}
	if s.err == nil {
		l := &line{request: s.request, place: placeOf(s.head), log: log}
		s.all = append(s.all, l.parcel(text))
	}
}

// status says how far the work is where that is news, or there is nothing else to say, and
// what it has put out.
func (s *saying) status(body envelope.WorkStatus) {
	output, step := "", s.step
	if body.Step != nil {
		output, step = body.Step.Output, body.Step.Name
	}
	if output == "" || body.Progress != s.progress || step != s.step {
		s.progress, s.step = body.Progress, step
		w := s.piece("log", s.nextLog()).Add("progress", strconv.Itoa(body.Progress)+"%")
		if step != "" {
			w.Text("step", step)
		}
		s.add(v5.Message{Type: v5.Update, State: v5.Running}, w, false)
	}
	for rest := output; rest != ""; {
		rest = s.text("log", s.nextLog(), rest)
	}
}

// nextLog is the number of the next piece of the log, which tells equal lines apart.
func (s *saying) nextLog() int {
	s.logged++
	return s.logged
}

// result says S where the work succeeded, and otherwise E with its exit code. What DATA
// cannot say goes before it in pieces.
func (s *saying) result(r envelope.WorkResult) {
	done := r.Status == envelope.OutcomeSuccess
	if text := strings.TrimSuffix(r.Output, "\n"); done {
		left, told := s.left(r.Resources.Tokens)
		if data, ok := asData(text); ok && told {
			s.add(v5.Message{Type: v5.Success, State: v5.Done, Budget: left, Data: data}, nil, false)
			return
		}
	}
	w := new(v5.Writer)
	if !done {
		w.Add("desc", "the work "+string(r.Status)).Number("exit_code", r.ExitCode)
	}
	if n := r.Resources.Tokens; n > 0 {
		w.Number("tokens", n)
	}
	if !s.pieces(r.Output, w) {
		s.all, done = nil, false
		w = new(v5.Writer).Text("desc", fmt.Sprintf("a result of %d bytes is too long for this protocol", len(r.Output)))
	}
	if done {
		s.add(v5.Message{Type: v5.Success, State: v5.Done}, w, false)
		return
	}
	s.add(v5.Message{Type: v5.Failure, State: v5.Failed, Err: v5.E99}, w, false)
}

// left is the budget that is left when so many tokens were used; told is whether that says
// how many.
func (s *saying) left(tokens int64) (left v5.Budget, told bool) {
	had, ok := s.head.Budget.Tokens()
	if tokens == 0 || !ok {
		return s.head.Budget, tokens == 0
	}
	return v5.BudgetOf(int64(had) - tokens), tokens <= int64(had)
}

// failure says E.
func (s *saying) failure(f envelope.Failure) {
	w := new(v5.Writer).Text("desc", f.Message)
	if len(f.Context) > 0 {
		w.Text("details", string(f.Context))
	}
	s.add(v5.Message{Type: v5.Failure, State: v5.Failed, Err: codeOf(f.Code)}, w, false)
}
