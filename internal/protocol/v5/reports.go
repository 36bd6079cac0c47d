package v5

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
	"comet/models"
)

// reasonMissing is the reason of an E10 for a piece that was not received.
const reasonMissing = "missing"

// maxParts is the number of pieces that a result can have: at 4 bytes a character they are no
// more than an attempt may output.
const maxParts = orchestrator.MaxOutput / (4 * wire.MaxData)

// handleReport handles a worker's message about its task.
func (p *Protocol) handleReport(ctx context.Context, s sender, m wire.Message) (protocol.Reply, error) {
	t, err := p.workerTask(ctx, s, m)
	if err != nil {
		return protocol.Reply{}, err
	}
	word, sendBack := "noted", false
	switch m.Type {
	case wire.Ack: // the worker accepts an assigned task; in other states this changes nothing
		if _, err = p.orchestrator.Accept(ctx, s.agentID, t.ID); errs.Is(err, errs.TaskState) {
			err = nil
		}
	case wire.Update:
		err = p.handleUpdate(ctx, s, m, t)
	case wire.Success:
		sendBack, err = true, p.handleSuccess(ctx, s, m, t)
	case wire.Failure:
		sendBack, err = true, p.handleFailure(ctx, s, m, t)
	default:
		word, sendBack, err = "asked", true, p.handleQuestion(ctx, s, m, t)
	}
	if err != nil {
		return protocol.Reply{}, reportError(err, s, m)
	}
	s.incoming.setContext(m)
	return p.acknowledge(m, word, sendBack)
}

// handleUpdate handles U (PROTOCOL_V5 §12.1): progress=50% is the progress, step= or desc= the
// current step, and all of DATA goes into the task's log. With part= it is a piece of the result.
func (p *Protocol) handleUpdate(ctx context.Context, s sender, m wire.Message, t models.Task) (err error) {
	progress := orchestrator.Progress{MessageID: messageKey(m, t)}
	if m.Data != "-" {
		progress.Log = []byte(string(m.Data) + "\n")
	}
	if text, ok := m.Data.Get("progress"); ok {
		n, ok := parsePercent(text)
		if !ok {
			return errorf(codes.E10, "", "progress must be 0%% to 100%%, not %s", text)
		}
		progress.Percent = &n
	}
	for _, key := range []string{"step", "desc"} {
		if text, ok := m.Data.Get(key); ok && progress.StepName == "" {
			progress.StepName, progress.Step = text, max(t.Step, 1)
			if text != t.StepName && t.StepName != "" {
				progress.Step = t.Step + 1
			}
		}
	}
	if isPiece(m.Data) {
		// A repeated piece is recognised by its number, not by its message.
		progress.MessageID, progress.Log = "", nil
		if progress.Chunk, err = parsePiece(s, m, t); err != nil {
			return err
		}
	}
	_, err = p.orchestrator.Progress(ctx, s.agentID, t.ID, progress)
	return err
}

// parsePiece reads a piece of a result. In the core a piece covers one position whatever its
// length, so that positions are numbers of pieces; the core joins the pieces in their order.
func parsePiece(s sender, m wire.Message, t models.Task) (*orchestrator.Chunk, error) {
	n, err := intPair(m.Data, keyPart, 1, maxParts, 0)
	if err != nil {
		return nil, err
	}
	text, err := pieceText(m)
	if err != nil {
		return nil, err
	}
	switch next := int(t.OutputBytes) + 1; {
	case len(text) == 0:
		return nil, errorf(codes.E10, "", "DATA must have text, the piece %d", n)
	case n > next && t.AgentID == s.agentID:
		return nil, errorf(codes.E10, reasonMissing, "piece %d is missing", next)
	}
	return &orchestrator.Chunk{Step: 1, Start: int64(n) - 1, Span: 1, Data: text}, nil
}

func pieceText(m wire.Message) ([]byte, error) {
	if m.Warnings.Truncated() {
		return nil, errorf(codes.E10, "", "DATA has more than %d characters; the end of the piece is lost", wire.MaxData)
	}
	text, _ := m.Data.Get(keyText)
	switch enc, _ := m.Data.Get(keyEnc); enc {
	case "":
		return []byte(text), nil
	case "base64":
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, errorf(codes.E10, "", "text is not valid Base64")
		}
		return raw, nil
	default:
		return nil, errorf(codes.E10, "", "enc must be base64, not %s", enc)
	}
}

// handleSuccess handles S: DATA is the result, or refers to its pieces. An S for a task that has
// ended otherwise is accepted too: the tokens that it used are charged.
func (p *Protocol) handleSuccess(ctx context.Context, s sender, m wire.Message, t models.Task) (err error) {
	var r orchestrator.Result
	if r.Tokens, err = usedTokens(t, m); err != nil {
		return err
	}
	inPieces, err := resultInPieces(s, m, t)
	switch {
	case inPieces:
		r.Detail, err = json.Marshal(storedReport{Data: m.Data})
	case m.Data != "-":
		r.Output = []byte(m.Data)
	}
	if err != nil {
		return err
	}
	return p.completeTask(ctx, s, m, t, r)
}

// resultInPieces reports whether an S or E says that the pieces are the result, and rejects one
// with a missing piece. Without any piece, as in §12.1, DATA is the result.
func resultInPieces(s sender, m wire.Message, t models.Task) (bool, error) {
	src, _ := m.Data.Get(keySrc)
	if src == "" || src != rawRef(m.Task).String() {
		return false, nil
	}
	want, err := intPair(m.Data, keyParts, 1, maxParts, 0)
	if err != nil || t.State.Ended() || t.AgentID != s.agentID { // the core decides about a late result
		return want > 0, err
	}
	have := int(t.OutputBytes)
	switch {
	case want > have:
		return false, errorf(codes.E10, reasonMissing, "piece %d is missing", have+1)
	case want != 0 && want < have:
		return false, errorf(codes.E10, "", "there are %d pieces, not %d", have, want)
	}
	return have > 0, nil
}

// handleFailure handles E (§8.3).
func (p *Protocol) handleFailure(ctx context.Context, s sender, m wire.Message, t models.Task) (err error) {
	if m.Err == "" || m.Err == codes.E00 {
		return errorf(codes.E10, "", "ERR must be the code of the error, such as E99, not %s", cmp.Or(string(m.Err), "-"))
	}
	if _, err := resultInPieces(s, m, t); err != nil {
		return err
	}
	r := orchestrator.Result{Failure: coreFailure(m.Err), Text: string(m.Data), ExitCode: exitCodePair(m.Data)}
	if r.Tokens, err = usedTokens(t, m); err != nil {
		return err
	}
	if m.Err == codes.E17 { // with another code it is any pair
		if r.Needed, _, err = tokensPair(m.Data, "needed"); err != nil {
			return err
		}
	}
	if r.Detail, err = json.Marshal(storedReport{Code: m.Err, Data: m.Data}); err != nil {
		return err
	}
	if text, ok := m.Data.Get("desc"); ok {
		r.Text = text
	}
	return p.completeTask(ctx, s, m, t, r)
}

// exitCodePair returns the exit_code= of an E, nil for none.
func exitCodePair(data wire.Data) *int {
	text, _ := data.Get(keyExit)
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > 1<<16 {
		return nil
	}
	return &n
}

// completeTask ends a task. For a task that has ended already it has no effect but the charge.
func (p *Protocol) completeTask(ctx context.Context, s sender, m wire.Message, t models.Task, r orchestrator.Result) error {
	r.MessageID = messageKey(m, t)
	if _, err := p.orchestrator.Complete(ctx, s.agentID, t.ID, r); !errs.Is(err, errs.TaskState) {
		return err
	}
	return nil
}

// usedTokens returns the tokens that a worker has used: tokens= where it is stated, and otherwise
// the difference between the assigned BUDGET and that of the report (§9.1).
func usedTokens(t models.Task, m wire.Message) (int64, error) {
	if n, stated, err := tokensPair(m.Data, "tokens"); stated || err != nil {
		return n, err
	}
	left, ok := m.Budget.Tokens()
	if !ok || t.Budget == nil {
		return 0, nil
	}
	had, _ := wire.NewBudget(*t.Budget - t.Tokens).Tokens()
	return max(int64(had-left), 0), nil
}

// tokensPair reads a number of tokens, false where there is none. An invalid number is E10:
// otherwise the worker would not notice that it is not charged.
func tokensPair(data wire.Data, key string) (n int64, stated bool, err error) {
	pair, ok := data.Pair(key)
	if !ok || pair.Flag {
		return 0, false, nil
	}
	n, err = strconv.ParseInt(pair.Value(), 10, 64)
	if err != nil || n < 0 || n > orchestrator.MaxBudget {
		return 0, false, errorf(codes.E10, "", "%s must be a number of tokens, not %s", key, pair.Value())
	}
	return n, true, nil
}

// messageKey identifies a report, so that it has its effect once in an attempt.
func messageKey(m wire.Message, t models.Task) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d|%s|%s|%s|%s|%d|%s|%s|%s", m.Number, m.From, m.To, m.Type, m.Task, m.Depth, m.Context, m.Budget, m.Data))
	return "v5:" + t.ID + ":" + strconv.Itoa(t.Attempt) + ":" + hex.EncodeToString(sum[:8])
}
