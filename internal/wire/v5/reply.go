package v5

// Reply answers a message: what it says of task, priority, depth, session and budget is
// kept (PROTOCOL_V5 §4.3, rule 6), and it goes back to its sender. from is who answers,
// which the message cannot say where it went to many. number is the answer's own. State
// and code are for the caller to set.
//
// to may be what Parse returns with an error. Where its sender could not be read, Format
// refuses the answer: there is nobody to send it to.
func Reply(to Message, from Address, number int, t Type, data Data) Message {
	m := Message{
		Number:   number,
		From:     from,
		To:       to.From,
		Type:     t,
		Task:     to.Task,
		Priority: to.Priority,
		Depth:    to.Depth,
		Context:  to.Context,
		Budget:   to.Budget,
		Data:     data,
	}
	if n, ok := m.Task.Number(); ok && n == 0 && !t.System() {
		m.Task = Task{}
	}
	if m.Context == SystemContext && !t.System() {
		m.Context = ""
	}
	return m
}

// Refuse answers a line that was refused (§8.3): state F, the code of the first check
// that failed, and what is wrong as DATA.
func Refuse(to Message, from Address, number int, err *Error) Message {
	m := Reply(to, from, number, Failure, err.Data())
	m.State = Failed
	m.Err = err.Code()
	return m
}
