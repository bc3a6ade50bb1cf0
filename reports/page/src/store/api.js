// Asks the server.

/** An answer that is none: its words are for the person. */
export class Refused extends Error {}

/** The answer to a question, such as `flamegraph`. */
export async function ask(question, parameters, signal) {
  let response;
  try {
    response = await fetch(`api/${question}?${parameters}`, { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server does not answer: is fpprof serve still running?");
  }
  const answer = await response.json();
  if (!response.ok) throw new Refused(answer.error);
  return answer;
}
