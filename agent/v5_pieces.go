package agent

import (
	"encoding/base64"
	"strings"

	"comet/internal/wire/v5"
)

// The sizes of pieces, as those of the pages of Q: characters, and bytes of what goes in
// Base64.
const (
	pieceRunes = 150
	pieceBytes = 108
	// maxPieces is how many of them a result may have.
	maxPieces = 335_544
)

// piece begins the DATA of a piece. The server is asked to answer it.
func (s *saying) piece(key string, number int) *v5.Writer {
	return new(v5.Writer).Number(key, int64(number)).Flag("ack")
}

// text says the first piece of a text, and returns the rest.
func (s *saying) text(key string, number int, text string) (rest string) {
	first := firstRunes(text, pieceRunes)
	w := s.piece(key, number).Quoted("text", first)
	if _, err := w.Data(); err != nil {
		first = text[:min(len(text), pieceBytes)]
		w = s.piece(key, number).Add("enc", "base64").Add("text", base64.StdEncoding.EncodeToString([]byte(first)))
	}
	s.add(v5.Message{Type: v5.Update, State: v5.Running}, w, key == "log")
	return text[len(first):]
}

func firstRunes(text string, most int) string {
	n := 0
	for i := range text {
		if n == most {
			return text[:i]
		}
		n++
	}
	return text
}

// asData is a result that DATA can say: it is read as nothing else.
func asData(text string) (v5.Data, bool) {
	data := v5.Data(text)
	if text == "" {
		return "-", true
	}
	for pair := range data.Pairs() {
		if pair.Key == "tokens" || pair.Key == "src" {
			return "", false
		}
	}
	m := v5.Message{Number: 1, From: v5.NthWorker(1), To: orchestrator(), Type: v5.Success, Task: v5.TaskOf(1), Data: data}
	line, err := v5.Format(m)
	return data, err == nil && text != "-" && strings.HasSuffix(line, "|"+text)
}

// pieces says a text in pieces, and refers to them. It reports whether the text is not too
// long for that.
func (s *saying) pieces(text string, w *v5.Writer) bool {
	n := 0
	for rest := text; rest != "" && s.err == nil; {
		if n++; n > maxPieces {
			return false
		}
		rest = s.text("part", n, rest)
	}
	if n > 0 {
		w.Ref("src", v5.Ref{Kind: v5.RefTask, Task: s.head.Task, Field: "raw"}).Number("bytes", int64(len(text))).Number("parts", int64(n))
	}
	return true
}
