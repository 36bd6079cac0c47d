package v5

import (
	"bytes"
	"strings"

	"comet/internal/protocol"
	wire "comet/internal/wire/v5"
	v4 "comet/internal/wire/v5/v4"
)

// toV4 puts an answer into V4.
func (p *Protocol) toV4(a protocol.Reply) protocol.Reply {
	var lines [][]byte
	for line := range bytes.SplitSeq(a.Body, []byte{'\n'}) {
		if len(line) > 0 {
			lines = append(lines, p.messageToV4(line, a.Location))
		}
	}
	a.Body = bytes.Join(lines, []byte{'\n'})
	return a
}

// messageToV4 puts a line of our own into V4 (PROTOCOL_V5 §14.2). at is where REST has the task
// that it is about, "" for not known.
func (p *Protocol) messageToV4(line []byte, at string) []byte {
	m, err := wire.Parse(string(line))
	if err != nil {
		p.log.Error("a line of our own cannot be read", "error", err)
		m = wire.Message{From: self, To: wire.Address{Role: wire.User}, Type: wire.Failure, State: wire.Failed, Err: wire.E99, Data: "-"}
	}
	return p.formatV4(adaptToV4(m, at))
}

// formatV4 writes a message of which V4 can say everything. Its number is counted for each
// receiver, since there is no CTX.
func (p *Protocol) formatV4(m wire.Message) []byte {
	m.Number = p.numbers.next(VersionV4 + " " + m.To.String())
	line, err := v4.Format(m)
	if err != nil {
		p.log.Error("a line cannot be put into V4", "error", err)
		plain := wire.Message{Number: m.Number, From: self, To: m.To, Type: wire.Failure, Task: m.Task, State: wire.Failed, Err: wire.E99, Data: "-"}
		line, _ = v4.Format(plain) // of which every part is sayable
	}
	return []byte(line)
}

// adaptToV4 replaces what V4 cannot say: D becomes the question that workers ask, C, a
// hand-off a request of O1's, a code that V5 has added E99, and a reference plain text.
// A signature was that of the line of V5.
func adaptToV4(m wire.Message, at string) wire.Message {
	m.Auth = wire.Auth{}
	m.Err = v4.Code(m.Err)
	switch m.Type {
	case wire.Disambiguate:
		m.Type, m.Data = wire.Clarify, questionDataV4(m.Data)
	case wire.Handoff:
		m.Type, m.State, m.From = wire.Request, wire.New, self
	case wire.Success:
		m.Data = resultDataV4(m.Data, at)
	}
	if isUnencodableV4(m.Data) {
		m.Data = withoutReferencesV4(m.Data)
	}
	return m
}

// questionDataV4 makes a question to a user, with opt1= to opt4=, one with a list, as workers
// ask it (§7.1). Where an option cannot stand in a list it stays.
func questionDataV4(data wire.Data) wire.Data {
	var options []string
	for p := range data.Pairs() {
		if strings.HasPrefix(p.Key, "opt") {
			options = append(options, p.Value())
		}
	}
	question, _ := data.Get("question")
	listed, err := new(wire.Writer).Add("question", question).List("options", options...).Data()
	if err != nil || len(options) == 0 {
		return data
	}
	return listed
}

// resultDataV4 says where a result is that DATA has no room for: V5 has a reference for it, and
// Q to read that.
func resultDataV4(data wire.Data, at string) wire.Data {
	src, _ := data.Get("src")
	size, sized := data.Get("bytes")
	if at == "" || !sized || !wire.IsRef(src) || data != wire.Data("src="+src+";bytes="+size) {
		return data
	}
	out, err := new(wire.Writer).Add("bytes", size).Add("output", at+"/output").Data()
	if err != nil {
		return data
	}
	return out
}

// withoutReferencesV4 makes references the text of one, character by character, as what V5 cannot say
// is replaced by what looks like it.
func withoutReferencesV4(data wire.Data) wire.Data {
	return wire.Data(strings.NewReplacer("#REF:", "＃REF:", "#CTX:", "＃CTX:", "#MSG:", "＃MSG:").Replace(string(data)))
}

// isUnencodableV4 reports whether DATA has what V4 cannot say.
func isUnencodableV4(data wire.Data) bool {
	_, err := v4.Format(wire.Message{
		Number: 1, From: self, To: wire.Address{Role: wire.User}, Type: wire.Success, Task: wire.TaskOf(1), Data: data,
	})
	return err != nil
}
