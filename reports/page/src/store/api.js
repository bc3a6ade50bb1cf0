// Queries the server.

/** A failed query; the message is shown to the user. */
export class Refused extends Error {}

/** Sends a query, such as `flamegraph`; returns its answer. */
export async function ask(question, parameters, signal) {
  // If the page was opened with the password in its address, `fetch` refuses to repeat it; the browser sends it anyway.
  const address = new URL(`api/${question}?${parameters}`, location.href);
  address.username = address.password = "";
  let response;
  try {
    response = await fetch(address, { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server does not answer: is fpprof serve still running?");
  }
  if (response.status === 401) throw new Refused("The server wants another token now: load the page again.");
  const answer = await response.json();
  if (!response.ok) throw new Refused(answer.error);
  return answer;
}
