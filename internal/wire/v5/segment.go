package v5

import "strings"

// The checks of PROTOCOL_V5 §3.5, but those of DATA, in their order. Each stores what
// it accepts and leaves the zero value where it refuses.

// systemType reports whether the type is one of system traffic. An unknown type is
// refused as such and by no other name.
func (p *parser) systemType() bool {
	t, ok := p.typeLetter()
	return !ok || t.System()
}

func (p *parser) typeLetter() (Type, bool) {
	text := p.fields[SegmentType-1]
	if len(text) != 1 || !Type(text[0]).Valid() {
		return 0, false
	}
	return Type(text[0]), true
}

func (p *parser) number() {
	n, ok := number(p.fields[SegmentMessage-1], 'M', 4)
	switch {
	case !ok:
		p.refuse(SegmentMessage, E10, "", "M and a number of at most four digits")
	case n == 0 && !p.system:
		p.refuse(SegmentMessage, E10, "", "M1 to M9999 outside of system traffic")
	default:
		p.m.Number = n
	}
}

func (p *parser) route() {
	text := p.fields[SegmentRoute-1]
	from, to, ok := strings.Cut(text, ">")
	if !ok {
		p.refuse(SegmentRoute, E13, "", "two ids with > between them, such as O1>W1")
		return
	}
	var problem string
	if p.m.From, problem = parseAddress(from); problem != "" {
		p.routeProblem(0, from, problem)
	} else if p.m.From.Many() {
		p.m.From = Address{}
		p.routeProblem(0, from, "can only be a destination")
	}
	if p.m.To, problem = parseAddress(to); problem != "" {
		p.routeProblem(len(from)+1, to, problem)
	}
}

func (p *parser) routeProblem(at int, found, problem string) {
	if p.quiet {
		return
	}
	p.fail(Problem{
		Code: E13, Segment: SegmentRoute, At: p.offset(SegmentRoute) + at,
		Detail: SegmentRoute.String() + ": " + quote(found) + " " + problem,
	})
}

func (p *parser) kind() {
	t, ok := p.typeLetter()
	if !ok {
		p.refuse(SegmentType, E14, "", "one of R S E C U A B H D J L K X Q")
		return
	}
	p.m.Type = t
}

func (p *parser) task() {
	text := p.fields[SegmentTask-1]
	if text == none {
		return
	}
	task, ok := ParseTask(text)
	switch n, _ := task.Number(); {
	case !ok:
		p.refuse(SegmentTask, E10, "", "T and a number of at most three digits, or -")
	case n == 0 && !p.system:
		p.refuse(SegmentTask, E10, "", "T1 to T999 outside of system traffic, or -")
	default:
		p.m.Task = task
	}
}

func (p *parser) priority() {
	switch text := p.fields[SegmentPriority-1]; text {
	case none:
	case "P0", "P1", "P2":
		p.m.Priority = Priority(text[1])
	default:
		p.refuse(SegmentPriority, E11, "", "P0, P1, P2 or -")
	}
}

func (p *parser) state() {
	switch text := p.fields[SegmentState-1]; text {
	case none:
	case "N", "R", "D", "F", "X":
		p.m.State = State(text[0])
	default:
		p.refuse(SegmentState, E15, ReasonState, "N, R, D, F, X or -")
	}
}

func (p *parser) code() {
	text := p.fields[SegmentErr-1]
	switch {
	case text == none:
	case Code(text).Valid():
		p.m.Err = Code(text)
	default:
		p.refuse(SegmentErr, E10, "", "E and two digits, or -")
	}
}

func (p *parser) depth() {
	text := p.fields[SegmentDepth-1]
	switch {
	case text == none:
		p.m.Warnings |= DepthMissing
	case len(text) == 1 && text[0]-'0' <= MaxDepth:
		p.m.Depth = int(text[0] - '0')
	default:
		p.refuse(SegmentDepth, E16, ReasonDepth, "0 to 5")
	}
}

func (p *parser) context() {
	text := p.fields[SegmentContext-1]
	switch {
	case text == none:
	case !isContext(text):
		p.refuse(SegmentContext, E10, "", "S and one to seven lower-case letters and digits, or -")
	case text == SystemContext && !p.system:
		p.refuse(SegmentContext, E10, "", "another session than S0 outside of system traffic")
	default:
		p.m.Context = text
	}
}

func (p *parser) budget() {
	text := p.fields[SegmentBudget-1]
	if text == none {
		return
	}
	n, ok := number(text, 'B', 4)
	if !ok {
		p.refuse(SegmentBudget, E10, "", "B and a number of at most four digits, or -")
		return
	}
	p.m.Budget = BudgetOf(int64(n))
}
