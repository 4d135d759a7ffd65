// The token of the address: it is behind the #, which browsers send to nobody, and leaves the address once it is read.

/** The token that the address ends with, which it then does no longer; null if there is none. */
export function takeToken() {
  const given = location.hash.slice(1);
  if (!/^[A-Za-z0-9_-]{32,}$/.test(given)) return null;
  history.replaceState(null, "", "./");
  return given;
}

/** Exchange the token for a cookie that no script can read. Throws what to tell somebody who is not let in. */
export async function showToken(token) {
  let answer;
  try {
    answer = await fetch("session", { method: "POST", headers: { Authorization: `Bearer ${encodeURIComponent(token)}` } });
  } catch {
    throw new Error("The console does not answer. Is it still running?");
  }
  if (!answer.ok) throw new Error((await answer.json()).error);
}
