package v5

import (
	"fmt"
	"strconv"
	"strings"
)

// Parse reads one line, with or without its line break (PROTOCOL_V5 §3.5). An error is
// an *Error that names every check the line fails; the message then holds what could be
// read, so that the answer can be addressed. In a line of fewer than eleven segments that
// is what stands before the gap, of the rest only CTX.
//
// A line is split into at most eleven segments, so that a bar too many is found in DATA
// and is E12. The strings of the message are parts of line.
func Parse(line string) (Message, error) {
	p := parser{line: strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")}
	p.run()
	if len(p.problems) > 0 {
		return p.m, &Error{Problems: p.problems}
	}
	return p.m, nil
}

// parser reads one line.
type parser struct {
	line   string
	fields [Segments]string
	m      Message
	// system is whether M0, T0 and S0 may stand in the line.
	system bool
	// quiet is set where a problem makes those behind it meaningless.
	quiet    bool
	problems []Problem
}

func (p *parser) run() {
	if len(p.line) > MaxLine {
		p.fail(Problem{Code: E10, At: MaxLine, Detail: fmt.Sprintf("the line is longer than %d bytes", MaxLine)})
		p.line = p.line[:MaxLine]
		p.quiet = true
	}
	if count := p.split(); count < Segments {
		p.short(count)
		return
	}
	p.head()
	p.priority()
	p.state()
	p.code()
	p.depth()
	p.context()
	p.budget()
	p.data()
}

// split cuts the line into its segments and returns how many it has, at most eleven.
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

// head reads the segments that every line needs, but DATA.
func (p *parser) head() {
	p.system = p.systemType()
	p.number()
	p.route()
	p.kind()
	p.task()
}

// short reads what can be read of a line that lacks a segment, without a word about
// segments that may only stand in another's place.
func (p *parser) short(count int) {
	detail := Counted(count) + ", not " + strconv.Itoa(Segments)
	if count != segmentsOfV4 {
		detail += ", or " + strconv.Itoa(segmentsOfV4) + " in V4"
	}
	if p.line == "" {
		detail = "the line is empty"
	}
	p.fail(Problem{Code: E10, At: len(p.line), Detail: detail})
	p.quiet = true
	p.head()
	if count > int(SegmentContext) { // else what stands there is DATA
		p.context()
	}
}

// segmentsOfV4 is how many segments a line of V4 has, which wire/pipe/v4 reads.
const segmentsOfV4 = 8

// Counted says how many segments a line has that should have another number of them.
func Counted(segments int) string {
	if segments == 1 {
		return "the line has 1 segment"
	}
	return "the line has " + strconv.Itoa(segments) + " segments"
}

// refuse notes that a segment is not what it must be.
func (p *parser) refuse(segment Segment, code Code, reason, want string) {
	if p.quiet {
		return
	}
	detail := fmt.Sprintf("%s must be %s, not %s", segment, want, quote(p.fields[segment-1]))
	p.fail(Problem{Code: code, Reason: reason, Segment: segment, At: p.offset(segment), Detail: detail})
}

func (p *parser) fail(problem Problem) {
	if !p.quiet {
		p.problems = append(p.problems, problem)
	}
}

// offset is the byte of the line at which a segment begins.
func (p *parser) offset(segment Segment) int {
	at := 0
	for _, field := range p.fields[:segment-1] {
		at += len(field) + 1
	}
	return at
}
