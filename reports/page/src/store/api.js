// Queries the server.

/** A failed query; the message is shown to the user. */
export class Refused extends Error {}

/** Sends a query, such as `flamegraph`; returns its answer. */
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
