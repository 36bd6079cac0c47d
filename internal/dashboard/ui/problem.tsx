// Error responses of the server.
import type { FieldError, Problem } from "./api";
import { Icon } from "./icons";
import { link, path } from "./router";

/** ProblemNotice shows the error response of the server with all its members. A form excludes the errors that its fields show. */
export function ProblemNotice({ problem, retry, errors = problem.errors }: { problem: Problem; retry?: () => void; errors?: FieldError[] }) {
  const further = errors.filter((e) => !problem.detail.includes(e.detail));
  const members = Object.entries(problem.members);
  return (
    <div class="notice bad" role="alert">
      <Icon name="warning" />
      <div>
        <span>{problem.detail}</span>
        {further.length > 0 && (
          <ul>
            {further.map((e) => (
              <li key={(e.pointer ?? e.parameter ?? e.header) + e.detail}>
                <code>{e.pointer ?? e.parameter ?? e.header}</code> {e.detail}
              </li>
            ))}
          </ul>
        )}
        {members.length > 0 && (
          <dl class="facts">
            {members.map(([name, value]) => [
              <dt key={name}>
                <code>{name}</code>
              </dt>,
              <dd key={name + "="}>
                <code>{typeof value === "string" ? value : JSON.stringify(value)}</code>
              </dd>,
            ])}
          </dl>
        )}
        {problem.requestID && <span class="faint">Request {problem.requestID}</span>}
      </div>
      {retry && (problem.status === 404 && path.value.includes("/") ? <a href={link(path.value.split("/")[0]!)}>Show the list</a> : <button onClick={retry}>Try again</button>)}
    </div>
  );
}

/** titleOf returns the title of a view while its object has no name: the id, or that there is no such object. */
export const titleOf = (id: string, problem?: Problem) => (problem?.status === 404 ? "Not found" : id);
