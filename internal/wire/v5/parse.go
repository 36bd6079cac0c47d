package v5

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"comet/internal/wire/v5/codes"
)

// Parse parses a message, with or without its line break (PROTOCOL_V5 §3.5). An error is an *Error
// with every failed check; the message then holds what could be parsed, so that the reply can be
// addressed. Of a message with fewer than eleven segments that is what is before the gap, and CTX.
//
// A message is split into at most eleven segments, so that a bar too many is found in DATA and is
// E12. The strings of the message are parts of line.
func Parse(line string) (Message, error) {
	m, invalid := parse(line)
	if invalid != nil {
		return m, invalid
	}
	return m, nil
}

func parse(line string) (Message, *Error) {
	p := parser{line: strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")}
	p.run()
	if len(p.problems) > 0 {
		return p.m, &Error{Problems: p.problems}
	}
	return p.m, nil
}

// parser parses one message. The methods for single segments are the checks of §3.5; each stores
// what it accepts and leaves the zero value where it rejects.
type parser struct {
	line   string
	fields [Segments]string
	m      Message
	// system is whether the message can have M0, T0 and S0.
	system bool
	// muted is set where a problem makes later problems meaningless.
	muted    bool
	problems []problem
}

func (p *parser) run() {
	if len(p.line) > MaxLine {
		p.fail(codes.E10, "", fmt.Sprintf("the message is longer than %d bytes", MaxLine))
		p.line = p.line[:MaxLine]
		p.muted = true
	}
	if count := p.split(); count < Segments {
		p.parseShort(count)
		return
	}
	p.parseHead()
	p.parsePriority()
	p.parseState()
	p.parseErr()
	p.parseDepth()
	p.parseContext()
	p.parseBudget()
	p.parseData()
}

// split cuts the message into its segments and returns their number, at most eleven.
func (p *parser) split() int {
	count, start := 0, 0
	for i := 0; i < len(p.line) && count < Segments-1; i++ {
		if p.line[i] == '|' { // segments are too short for strings.IndexByte to pay
			p.fields[count] = p.line[start:i]
			count, start = count+1, i+1
		}
	}
	p.fields[count] = p.line[start:]
	return count + 1
}

// parseHead parses the required segments but DATA.
func (p *parser) parseHead() {
	t, ok := p.messageType()
	p.system = !ok || t.isSystem() // an unknown type is reported as such only
	p.parseNumber()
	p.parseRoute()
	if ok {
		p.m.Type = t
	} else {
		p.reject(segmentType, codes.E14, "", "one of R S E C U A B H D J L K X Q")
	}
	p.parseTask()
}

// parseShort parses what can be parsed of a message with too few segments, without problems of
// segments that may only be at a wrong position.
func (p *parser) parseShort(count int) {
	detail := segmentCount(count) + ", not " + strconv.Itoa(Segments)
	if count != SegmentsV4 {
		detail += ", or " + strconv.Itoa(SegmentsV4) + " in V4"
	}
	if p.line == "" {
		detail = "the message is empty"
	}
	p.fail(codes.E10, "", detail)
	p.muted = true
	p.parseHead()
	if count > int(segmentContext) { // otherwise that position has DATA
		p.parseContext()
	}
}

func segmentCount(n int) string {
	if n == 1 {
		return "the message has 1 segment"
	}
	return "the message has " + strconv.Itoa(n) + " segments"
}

func (p *parser) messageType() (Type, bool) {
	text := p.fields[segmentType-1]
	if len(text) != 1 || !Type(text[0]).isValid() {
		return 0, false
	}
	return Type(text[0]), true
}

func (p *parser) parseNumber() {
	n, ok := parseNumber(p.fields[segmentMessage-1], 'M', 4)
	switch {
	case !ok:
		p.reject(segmentMessage, codes.E10, "", "M and a number of at most four digits")
	case n == 0 && !p.system:
		p.reject(segmentMessage, codes.E10, "", "M1 to M9999 outside of system traffic")
	default:
		p.m.Number = n
	}
}

func (p *parser) parseRoute() {
	text := p.fields[segmentRoute-1]
	from, to, ok := strings.Cut(text, ">")
	if !ok {
		p.reject(segmentRoute, codes.E13, "", "two ids with > between them, such as O1>W1")
		return
	}
	var problem string
	if p.m.From, problem = parseAddress(from); problem != "" {
		p.rejectAddress(from, problem)
	} else if p.m.From.IsMulticast() {
		p.m.From = Address{}
		p.rejectAddress(from, "can only be a destination")
	}
	if p.m.To, problem = parseAddress(to); problem != "" {
		p.rejectAddress(to, problem)
	}
}

func (p *parser) rejectAddress(found, reason string) {
	p.fail(codes.E13, "", segmentRoute.String()+": "+quote(found)+" "+reason)
}

func (p *parser) parseTask() {
	text := p.fields[segmentTask-1]
	if text == none {
		return
	}
	task, ok := parseTask(text)
	switch n, _ := task.Number(); {
	case !ok:
		p.reject(segmentTask, codes.E10, "", "T and a number of at most three digits, or -")
	case n == 0 && !p.system:
		p.reject(segmentTask, codes.E10, "", "T1 to T999 outside of system traffic, or -")
	default:
		p.m.Task = task
	}
}

func (p *parser) parsePriority() {
	switch text := p.fields[segmentPriority-1]; text {
	case none:
	case "P0", "P1", "P2":
		p.m.Priority = Priority(text[1])
	default:
		p.reject(segmentPriority, codes.E11, "", "P0, P1, P2 or -")
	}
}

func (p *parser) parseState() {
	switch text := p.fields[segmentState-1]; text {
	case none:
	case "N", "R", "D", "F", "X":
		p.m.State = State(text[0])
	default:
		p.reject(segmentState, codes.E15, codes.ReasonState, "N, R, D, F, X or -")
	}
}

func (p *parser) parseErr() {
	text := p.fields[segmentErr-1]
	switch {
	case text == none:
	case codes.Code(text).Valid():
		p.m.Err = codes.Code(text)
	default:
		p.reject(segmentErr, codes.E10, "", "E and two digits, or -")
	}
}

func (p *parser) parseDepth() {
	text := p.fields[segmentDepth-1]
	switch {
	case text == none:
		p.m.Warnings |= depthMissing
	case len(text) == 1 && text[0]-'0' <= MaxDepth:
		p.m.Depth = int(text[0] - '0')
	default:
		p.reject(segmentDepth, codes.E16, codes.ReasonDepth, "0 to 5")
	}
}

func (p *parser) parseContext() {
	text := p.fields[segmentContext-1]
	switch {
	case text == none:
	case !isContext(text):
		p.reject(segmentContext, codes.E10, "", "S and one to seven lower-case letters and digits, or -")
	case text == SystemContext && !p.system:
		p.reject(segmentContext, codes.E10, "", "a session such as S1, or -, outside of system traffic")
	default:
		p.m.Context = text
	}
}

func (p *parser) parseBudget() {
	text := p.fields[segmentBudget-1]
	if text == none {
		return
	}
	n, ok := parseNumber(text, 'B', 4)
	if !ok {
		p.reject(segmentBudget, codes.E10, "", "B and a number of at most four digits, or -")
		return
	}
	p.m.Budget = NewBudget(int64(n))
}

// parseData is checks 12 and 13 of §3.5. DATA must also be valid UTF-8 without control characters.
func (p *parser) parseData() {
	text, auth, ok := cutAuth(p.fields[segmentData-1])
	if !ok {
		p.rejectData(codes.E90, codes.ReasonAuth,
			"must have auth as the last of two or more pairs: a session, 4 hex digits and 8, with colons between them")
		return
	}
	if text == "" {
		p.rejectData(codes.E10, "", "must not be empty; - is DATA without content")
		return
	}
	found := inspect(text)
	switch {
	case found.defect == notUTF8:
		p.rejectData(codes.E10, "", "is not valid UTF-8")
		return
	case found.defect == forbidden:
		c, _ := utf8.DecodeRuneInString(text[found.at:])
		p.rejectData(codes.E12, "", fmt.Sprintf("must not have %q in it", c))
		return
	case found.runes > MaxData:
		text = firstRunes(text, MaxData)
		p.m.Warnings |= dataTruncated
	}
	if found.quotes%2 == 1 {
		p.m.Warnings |= quoteOpen
	}
	p.m.Data, p.m.Auth = Data(text), auth
}

func (p *parser) rejectData(code codes.Code, reason, detail string) {
	p.fail(code, reason, segmentData.String()+" "+detail)
}

// reject adds the problem that a segment is not what it must be.
func (p *parser) reject(s segment, code codes.Code, reason, want string) {
	p.fail(code, reason, fmt.Sprintf("%s must be %s, not %s", s, want, quote(p.fields[s-1])))
}

func (p *parser) fail(code codes.Code, reason, detail string) {
	if !p.muted {
		p.problems = append(p.problems, problem{code, reason, detail})
	}
}
