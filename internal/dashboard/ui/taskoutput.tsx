// The output and the log of a task, which are followed while the task runs.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Problem, query, type Schemas } from "./api";
import { AsCurl, CopyButton, Empty, Panel } from "./components";
import { count } from "./format";
import { followOutput, type Shown } from "./outputstream";
import { ProblemNotice } from "./problem";

type Which = "result" | "log";

/** names are the names of the outputs. */
const names: Record<Which, string> = { result: "Result", log: "Log" };

export function Output({ task, path }: { task: Schemas["TaskDetail"]; path: string }) {
  const open = task.state === "new" || task.state === "running";
  const [chosen, choose] = useState<Which>();
  const logFirst = useRef(false); // a command sends its output as the log while it runs, and the result at its end
  logFirst.current ||= open && task.output.bytes === 0 && task.log.bytes > 0;
  const which = chosen ?? (logFirst.current ? "log" : "result");
  const address = path + "/output";
  const whole = query(address, { stream: which });
  const { shown, lost, problem } = useOutput(address, which);
  const [following, follow] = useState(true);
  return (
    <Panel
      title={open ? "Output, live" : "Output"}
      actions={
        <>
          <div class="segments" role="group" aria-label="Which output">
            {(["result", "log"] as Which[]).map((w) => (
              <button key={w} aria-pressed={w === which} onClick={() => choose(w)}>
                {names[w]}
              </button>
            ))}
          </div>
          {open && (
            <label class="row">
              <input type="checkbox" role="switch" checked={following} onChange={(e) => follow(e.currentTarget.checked)} /> Follow
            </label>
          )}
          {shown.text && <CopyButton text={shown.text} />}
          {shown.text && (
            <a class="button" href={whole} download={`task-${task.id}-${which}.txt`}>
              Download
            </a>
          )}
          <AsCurl calls={[{ path: whole }, { path: query(address, { stream: which, follow: true }) }]} />
        </>
      }
    >
      {problem && <ProblemNotice problem={problem} />}
      {lost && <p class="notice warn" role="status">{lost} The output continues when the server responds.</p>}
      {shown.cut > 0 && (
        <p class="faint" data-cut={shown.cut}>
          The first {count(shown.cut)} bytes are not shown. <a href={whole} target="_blank" rel="noopener">Show the whole output</a>
        </p>
      )}
      {shown.text ? (
        <Text text={shown.text} label={names[which]} following={open && following} follow={follow} />
      ) : (
        <Empty icon="clock" title={open ? "No output yet" : which === "log" ? "The agent sent no log" : "The task has no output"} />
      )}
    </Panel>
  );
}

/** Text scrolls along with the output while it is followed, and reports when the reader scrolls up or back to the end. */
function Text({ text, label, following, follow }: { text: string; label: string; following: boolean; follow: (on: boolean) => void }) {
  const box = useRef<HTMLPreElement>(null);
  const top = useRef(0);
  useLayoutEffect(() => {
    const e = box.current!;
    if (!following) return;
    // The reader has scrolled up, and the event has not arrived yet.
    if (e.scrollTop < Math.min(top.current, e.scrollHeight - e.clientHeight) - 1) follow(false);
    else e.scrollTop = e.scrollHeight;
    top.current = e.scrollTop;
  }, [text, following]);
  const scrolled = ({ currentTarget: e }: { currentTarget: HTMLPreElement }) => {
    const atEnd = e.scrollTop + e.clientHeight > e.scrollHeight - 24;
    if (e.scrollTop < top.current && !atEnd) follow(false);
    else if (e.scrollTop > top.current && atEnd) follow(true);
    top.current = e.scrollTop;
  };
  return (
    <pre class="code" ref={box} tabIndex={0} role="region" aria-label={label} onScroll={scrolled}>
      {text}
    </pre>
  );
}

/** useOutput returns the part of an output that has arrived so far, and the reason for an interruption. */
function useOutput(path: string, which: Which): { shown: Shown; lost: string; problem?: Problem } {
  const [shown, show] = useState<Shown>({ text: "", cut: 0 });
  const [lost, setLost] = useState("");
  const [problem, setProblem] = useState<Problem>();
  useEffect(() => {
    show({ text: "", cut: 0 });
    setLost("");
    setProblem(undefined);
    const stop = new AbortController();
    followOutput(path, which, stop.signal, show, setLost).catch((thrown) => {
      if (!stop.signal.aborted) setProblem(Problem.of(thrown));
    });
    return () => stop.abort();
  }, [path, which]);
  return { shown, lost, problem };
}
