"use strict";
// Exchanges the token for a cookie that no script can read. The token is behind the # of the address, which browsers
// send to nobody, and leaves the address as soon as it was read.

const problem = document.getElementById("problem");
const form = document.getElementById("enter");

async function enter(token) {
  problem.textContent = "";
  try {
    const answer = await fetch("session", { method: "POST", headers: { Authorization: `Bearer ${token}` } });
    if (answer.ok) {
      location.replace("./");
      return;
    }
    problem.textContent = (await answer.json()).error;
  } catch {
    problem.textContent = "The console does not answer. Is it still running?";
  }
  document.getElementById("token").focus();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  enter(document.getElementById("token").value.trim().split("#").pop());
});

const given = location.hash.slice(1);
if (/^[A-Za-z0-9_-]{32,}$/.test(given)) {
  history.replaceState(null, "", "./");
  enter(given);
} else {
  document.getElementById("token").focus();
}
