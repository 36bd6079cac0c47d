package v5

import (
	"encoding/base64"
	"encoding/json"
	"strconv"

	"comet/internal/orchestrator"
	wire "comet/internal/wire/v5"
	"comet/models"
)

// A worker says what DATA has no room for (PROTOCOL_V5 §3.4, §9.3) in pieces, one in each
// U: part=<n> is the n-th piece of its result, from 1 and in order, and log=<n> a piece of
// its log, whose number only tells equal lines apart. text= is the piece, with enc=base64
// where DATA cannot say it. An S whose DATA has src=#REF:<its TID>:raw then means that the
// pieces are the result (§12.1).
const (
	keyPart  = "part"
	keyLog   = "log"
	keyText  = "text"
	keyEnc   = "enc"
	keySrc   = "src"
	keyParts = "parts" // how many pieces there are, in the S
	keyExit  = "exit_code"
	// keyAck asks for an answer to what has none otherwise.
	keyAck = "ack"
)

// reasonMissing goes with E10 where a piece before this one, or before the end, is not
// there.
const reasonMissing = "missing"

// maxParts is how many pieces a result may have. Each is DATA of its own, so that they are
// together no more than an attempt may put out.
const maxParts = orchestrator.MaxOutput / (4 * wire.MaxData)

// parsePiece makes of a report that carries a piece one that puts it where it belongs. In
// the core a piece stands for one place, whatever its length, so that the places are
// the numbers; the core puts the pieces together in their order.
func parsePiece(s sender, m wire.Message, t models.Task, p *orchestrator.Progress) error {
	part, err := intPair(m.Data, keyPart, 1, maxParts, 0)
	if err != nil {
		return err
	}
	if part == 0 && !isLogPiece(m.Data) {
		return nil
	}
	text, err := pieceText(m)
	if err != nil {
		return err
	}
	if p.Log = text; part == 0 {
		return nil
	}
	switch next := int(t.OutputBytes) + 1; {
	case len(text) == 0:
		return errorf(wire.E10, "", "DATA must have text, the piece %d", part)
	case part > next && t.AgentID == s.agentID:
		return errorf(wire.E10, reasonMissing, "piece %d is missing", next)
	}
	// The same piece again is found by its place, and not by its message.
	p.MessageID, p.Log = "", nil
	p.Chunk = &orchestrator.Chunk{Step: 1, Start: int64(part) - 1, Span: 1, Data: text}
	return nil
}

// isLogPiece reports whether DATA is a piece of the log, which has a number. Text in its place is
// a pair like any other.
func isLogPiece(data wire.Data) bool {
	text, _ := data.Get(keyLog)
	n, err := strconv.Atoi(text)
	return err == nil && n >= 0
}

// pieceText is the text of a piece.
func pieceText(m wire.Message) ([]byte, error) {
	if m.Warnings.Has(wire.DataTruncated) {
		return nil, errorf(wire.E10, "", "DATA has more than %d characters; the end of the piece is lost", wire.MaxData)
	}
	text, _ := m.Data.Get(keyText)
	switch enc, _ := m.Data.Get(keyEnc); enc {
	case "":
		return []byte(text), nil
	case "base64":
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, errorf(wire.E10, "", "text is no Base64")
		}
		return raw, nil
	default:
		return nil, errorf(wire.E10, "", "enc must be base64, not %s", enc)
	}
}

// resultInPieces reports whether an S or E says that the pieces are the result, and refuses one
// before which a piece is missing. In §12.1 there are none: then DATA is the result.
func resultInPieces(s sender, m wire.Message, t models.Task) (bool, error) {
	src, _ := m.Data.Get(keySrc)
	if src == "" || src != (wire.Ref{Kind: wire.RefTask, Task: m.Task, Field: "raw"}).String() {
		return false, nil
	}
	want, err := intPair(m.Data, keyParts, 1, maxParts, 0)
	if err != nil || t.State.Ended() || t.AgentID != s.agentID { // the core judges what is late
		return want > 0, err
	}
	have := int(t.OutputBytes)
	switch {
	case want > have:
		return false, errorf(wire.E10, reasonMissing, "piece %d is missing", have+1)
	case want != 0 && want < have:
		return false, errorf(wire.E10, "", "there are %d pieces, and not %d", have, want)
	}
	return have > 0, nil
}

// piecesDetail is what is kept of an S whose result came in pieces, for its asker.
func piecesDetail(m wire.Message) (json.RawMessage, error) {
	return json.Marshal(failureDetail{Data: m.Data})
}

// dataOfPieces is the DATA of such an S, "" for a result that came otherwise.
func dataOfPieces(t models.Task) wire.Data {
	if kept := readFailureDetail(t); t.State == models.TaskDone && kept.Code == "" {
		return kept.Data
	}
	return ""
}

// fieldOfPieces is a field of that DATA; S is all of it.
func fieldOfPieces(t models.Task, field string) (string, bool) {
	data := dataOfPieces(t)
	if data == "" || field == "raw" || field == "" {
		return "", false
	}
	if field == "S" {
		return string(data), true
	}
	return data.Get(field)
}

// exitCodePair is the exit code that an E says, nil for none.
func exitCodePair(data wire.Data) *int {
	text, _ := data.Get(keyExit)
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > 1<<16 {
		return nil
	}
	return &n
}

// writeFailure writes what a task of another dialect failed with: its exit code, and where its
// output is.
func writeFailure(w *wire.Writer, tid wire.Task, t models.Task) *wire.Writer {
	if t.ExitCode != nil && *t.ExitCode > 0 {
		w.Number(keyExit, int64(*t.ExitCode))
	}
	if t.OutputBytes > 0 {
		w.Ref(keySrc, wire.Ref{Kind: wire.RefTask, Task: tid, Field: "raw"}).Number("bytes", t.OutputBytes)
	}
	return w
}
